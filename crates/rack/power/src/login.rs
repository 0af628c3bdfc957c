//! Credentials for a controller: a file with `USER:PASSWORD` that only its owner may read.

use crate::Cause;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Limit on the bytes of a login file. A longer one is refused.
const MAX_BYTES: u64 = 512;

/// A user name and a password. The password is never printed.
#[derive(Clone, Eq, PartialEq)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({})", self.user)
    }
}

impl Login {
    /// Reads a login from a file.
    ///
    /// # Errors [`Cause::File`] if the file cannot be read or is not UTF-8, if it is longer than
    /// 512 bytes, if its group or others have any access to it, if it is not `USER:PASSWORD` on one
    /// line, or if the user begins with `-`.
    pub(crate) fn read(path: &Path) -> Result<Self, Cause> {
        let wrong = |why: String| Cause::File { path: path.to_owned(), why };
        let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
        let mode = file.metadata().map_err(|error| wrong(error.to_string()))?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(wrong("others may read or change it: chmod 600".to_owned()));
        }
        let text =
            sprat_host::read_text(file, MAX_BYTES).map_err(|error| wrong(error.to_string()))?;
        let (user, password) =
            text.trim_end_matches(['\r', '\n']).split_once(':').unwrap_or_default();
        let plain = |text: &str| !text.chars().any(char::is_control);
        if user.is_empty() || user.starts_with('-') || !plain(user) || !plain(password) {
            return Err(wrong("want USER:PASSWORD, on one line".to_owned()));
        }
        Ok(Self { user: user.to_owned(), password: password.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_that_others_may_read_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("login");
        let put = |text: &str, mode: u32| {
            std::fs::write(&path, text).expect("a file");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))
                .expect("its mode");
            Login::read(&path)
        };
        let login = put("admin:a:b\n", 0o600).expect("a login");
        assert_eq!((login.user.as_str(), login.password.as_str()), ("admin", "a:b"));
        assert!(!format!("{login:?}").contains("a:b"));
        for (text, mode, why) in
            [("admin:x", 0o644, "chmod 600"), ("admin", 0o600, "USER"), ("-x:y", 0o600, "USER")]
        {
            assert!(put(text, mode).expect_err(text).to_string().contains(why), "{text}");
        }
        let long = format!("admin:{}", "x".repeat(600));
        let refused = put(&long, 0o600).expect_err("its password must not be cut");
        assert!(refused.to_string().contains("longer than 512 bytes"), "{refused}");
    }
}
