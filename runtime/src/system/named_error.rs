//! An error of the system with the path that it is about.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;

#[derive(Debug)]
struct Named {
    text: String,
    code: Option<i32>,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Named {}

/// The error with the path before its text. Its kind and its [`os_code`] stay.
pub(crate) fn named(path: &Path, error: &io::Error) -> io::Error {
    let named = Named {
        text: format!("{}: {error}", path.display()),
        code: os_code(error),
    };
    io::Error::new(error.kind(), named)
}

/// The code of the system, also of an error that was [`named`].
pub(crate) fn os_code(error: &io::Error) -> Option<i32> {
    let named = error.get_ref().and_then(|it| it.downcast_ref::<Named>());
    named.map_or_else(|| error.raw_os_error(), |named| named.code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_with_a_path_keeps_its_kind_and_code() {
        let error = io::Error::from_raw_os_error(libc::ENOENT);
        let once = named(Path::new("/b"), &error);
        let twice = named(Path::new("/a"), &once);
        assert!(twice.to_string().starts_with("/a: /b: No such file"));
        assert_eq!(twice.kind(), io::ErrorKind::NotFound);
        assert_eq!(os_code(&twice), Some(libc::ENOENT));
        assert_eq!(os_code(&io::Error::other("text")), None);
    }
}
