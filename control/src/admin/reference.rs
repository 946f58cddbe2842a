//! The description of a route: a line of text, its query parameters, the shapes of its body and answer, and the headers that
//! it reads. Tests generate the pages of the admin API, its OpenAPI document and the console's types from it; other builds
//! do not contain it.

#[cfg(test)]
pub(super) use schemars::JsonSchema as Shape;

/// A type whose shape the documentation shows.
#[cfg(not(test))]
pub(super) trait Shape {}

#[cfg(not(test))]
impl<T: ?Sized> Shape for T {}

/// The description of a route.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reference {
    /// One sentence.
    #[cfg(test)]
    pub(super) doc: &'static str,
    /// A struct of query parameters, or a tuple of such structs.
    #[cfg(test)]
    pub(super) query: Option<ShapeOf>,
    #[cfg(test)]
    pub(super) body: Option<ShapeOf>,
    #[cfg(test)]
    pub(super) answer: Option<ShapeOf>,
    /// The statuses of success, if they are not 200 or, without content, 204.
    #[cfg(test)]
    pub(super) statuses: &'static [u16],
    /// True for a POST that acts again when it is repeated with the same `Idempotency-Key`.
    #[cfg(test)]
    pub(super) acts_each_time: bool,
}

/// Returns the schema of a type, by reference if it has a name.
#[cfg(test)]
type ShapeOf = fn(&mut schemars::SchemaGenerator) -> schemars::Schema;

#[cfg(test)]
impl Reference {
    pub(super) const NONE: Self =
        Self { doc: "", query: None, body: None, answer: None, statuses: &[], acts_each_time: false };

    pub(super) const fn answers<A: Shape>(mut self, doc: &'static str) -> Self {
        self.doc = doc;
        self.answer = Some(|generator| generator.subschema_for::<A>());
        self
    }

    pub(super) const fn takes<B: Shape>(mut self) -> Self {
        self.body = Some(|generator| generator.subschema_for::<B>());
        self
    }

    pub(super) const fn query<Q: Shape>(mut self) -> Self {
        self.query = Some(|generator| generator.subschema_for::<Q>());
        self
    }

    pub(super) const fn statuses(mut self, statuses: &'static [u16]) -> Self {
        self.statuses = statuses;
        self
    }

    pub(super) const fn acts_each_time(mut self) -> Self {
        self.acts_each_time = true;
        self
    }
}

#[cfg(not(test))]
impl Reference {
    pub(super) const NONE: Self = Self {};

    pub(super) const fn answers<A: Shape>(self, _: &'static str) -> Self {
        self
    }

    pub(super) const fn takes<B: Shape>(self) -> Self {
        self
    }

    pub(super) const fn query<Q: Shape>(self) -> Self {
        self
    }

    pub(super) const fn statuses(self, _: &'static [u16]) -> Self {
        self
    }

    pub(super) const fn acts_each_time(self) -> Self {
        self
    }
}

/// The answer of a route that answers 204, without a body.
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct NoContent;

/// The answer of a route that sends a file.
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct FileContent;

/// The body of a request of the data plane.
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DataPlaneBody {}

/// The answer of the data plane.
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DataPlaneAnswer {}

/// A body without members.
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct NoMembers {}

/// An OpenAPI document.
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct OpenApiDocument {}
