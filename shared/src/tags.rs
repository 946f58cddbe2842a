//! Tags: names and values that tell requests apart in reports, such as the run of a benchmark. Their text is
//! `job=7,team=a`, sorted by name, so that equal tags have equal texts.

/// Adds the tags of a line such as `team=a,job=7` to `tags`. The error completes the sentence "This is invalid: ...".
pub fn read<'a>(line: &'a str, tags: &mut Vec<(&'a str, &'a str)>) -> Result<(), String> {
    for pair in line.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let Some((name, value)) = pair.split_once('=') else {
            return Err("each tag must be NAME=VALUE, and one has no '='".to_owned());
        };
        let (name, value) = (name.trim(), value.trim());
        check(name, value)?;
        if tags.iter().any(|(known, _)| *known == name) {
            return Err(format!("the tag '{name}' occurs twice"));
        }
        if tags.len() >= TAGS_MAX {
            return Err(format!("there are more than {TAGS_MAX} tags"));
        }
        tags.push((name, value));
    }
    Ok(())
}

/// Checks the characters and the length of a tag. The error completes the sentence "This is invalid: ...".
pub fn check(name: &str, value: &str) -> Result<(), String> {
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_.-".contains(&byte);
    if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_name) {
        return Err(format!(
            "a tag name must be 1 to {NAME_BYTES_MAX} of the characters a-z, 0-9, '_', '.' and '-'"
        ));
    }
    let is_value = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-:/@+".contains(&byte);
    if !(1..=VALUE_BYTES_MAX).contains(&value.len()) || !value.bytes().all(is_value) {
        return Err(format!(
            "the value of the tag '{name}' must be 1 to {VALUE_BYTES_MAX} letters, digits, '_', '.', '-', \
             ':', '/', '@' and '+'"
        ));
    }
    Ok(())
}

/// Returns the text of `tags`; `None` if there are none.
pub fn text(mut tags: Vec<(&str, &str)>) -> Option<Box<str>> {
    if tags.is_empty() {
        return None;
    }
    tags.sort_unstable();
    let pairs: Vec<String> = tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
    Some(pairs.join(",").into())
}

/// Adds those of `defaults`, the text of tags, whose names `tags` does not contain.
pub fn add_defaults<'a>(tags: &mut Vec<(&'a str, &'a str)>, defaults: &'a str) {
    for (name, value) in pairs(defaults) {
        if !tags.iter().any(|(own, _)| *own == name) {
            tags.push((name, value));
        }
    }
}

/// Returns the tags of a text.
pub fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(',').filter_map(|tag| tag.split_once('='))
}

/// Returns true if `defaults`, the text of a key's default tags, says that the key was issued to a client that signed in.
pub fn is_signed_in(defaults: Option<&str>) -> bool {
    defaults.is_some_and(|defaults| pairs(defaults).any(|pair| pair == SIGNED_IN))
}

/// The default tag of keys that Claude Code got by its sign-in.
pub const SIGNED_IN: (&str, &str) = ("signed_in", "claude_code");
/// The maximum number of tags of a request, and of default tags of a key.
pub const TAGS_MAX: usize = 8;
const NAME_BYTES_MAX: usize = 32;
const VALUE_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(lines: &[&str]) -> Result<Option<Box<str>>, String> {
        let mut tags = Vec::new();
        lines.iter().try_for_each(|line| read(line, &mut tags))?;
        Ok(text(tags))
    }

    #[test]
    fn tags_are_read_in_any_order_and_rejected_past_each_limit() {
        let (name, value) = ("n".repeat(32), "v".repeat(64));
        let eight = (0..8).map(|n| format!("t{n}=x")).collect::<Vec<_>>().join(",");
        for (lines, want) in [
            (&["team=a,job=7"][..], Some("job=7,team=a")),
            (&["team=a", "job=7"], Some("job=7,team=a")),
            (&[" team = a , ,job=7,"], Some("job=7,team=a")),
            (&["a.b-c_9=Az9_.-:/@+"], Some("a.b-c_9=Az9_.-:/@+")),
            (&[&format!("{name}={value}")], Some(&*format!("{name}={value}"))),
            (&[&eight], Some(&*eight)),
            (&[""], None),
            (&[], None),
        ] {
            assert_eq!(read_all(lines).unwrap().as_deref(), want, "{lines:?}");
        }
        for (line, why) in [
            ("team", "no '='"),
            ("=a", "tag name"),
            ("Team=a", "tag name"),
            ("te am=a", "tag name"),
            (&format!("{name}n=a"), "tag name"),
            ("team=", "value of the tag 'team'"),
            ("team=a b", "value of the tag 'team'"),
            ("team=a=b", "value of the tag 'team'"),
            (&format!("team={value}v"), "value of the tag 'team'"),
            ("team=a,team=b", "'team' occurs twice"),
            (&format!("{eight},t8=x"), "more than 8 tags"),
            ("team=\u{e4}", "value of the tag 'team'"),
        ] {
            let fault = read_all(&[line]).unwrap_err();
            assert!(fault.contains(why), "{line}: {fault}");
        }
    }

    #[test]
    fn a_default_counts_unless_a_tag_of_the_request_has_its_name() {
        for (own, defaults, want) in [
            ("", "run=a,team=b", Some("run=a,team=b")),
            ("run=z", "run=a,team=b", Some("run=z,team=b")),
            ("run=z", "", Some("run=z")),
            ("", "", None),
        ] {
            let mut tags = Vec::new();
            read(own, &mut tags).unwrap();
            add_defaults(&mut tags, defaults);
            assert_eq!(text(tags).as_deref(), want, "{own:?} {defaults:?}");
        }
    }
}
