-- The stable name by which the identity provider of single sign-on knows a human.
ALTER TABLE principals ADD COLUMN sso_subject TEXT;
CREATE UNIQUE INDEX principals_by_sso_subject ON principals (sso_subject);
