//! The job key: 256 bits that all processes of a job have, and nobody else.

use crate::derive::expand;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use erd_rd::keys::Secret;
use erd_sys::secret::SecretBytes;
use rustix::fs::{FileType, Mode, OFlags};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;
use zeroize::Zeroizing;

/// Bytes of a job key.
pub const KEY_BYTES: usize = 32;
/// Where a process finds its open descriptors.
const DESCRIPTORS: [&str; 2] = ["/dev/fd", "/proc/self/fd"];
/// Longest file that is read: 64 hexadecimal digits and white space.
const FILE_BYTES_MAX: u64 = 256;

/// True for the path of an inherited descriptor.
#[must_use]
pub fn is_inherited(path: &Path) -> bool {
    DESCRIPTORS.iter().any(|dir| path.parent() == Some(Path::new(dir)))
}

/// A job key. A forked child does not have it.
#[derive(Clone, Debug)]
pub struct JobKey(Arc<SecretBytes<KEY_BYTES>>);

impl PartialEq for JobKey {
    fn eq(&self, other: &JobKey) -> bool {
        verify_slices_are_equal(self.bytes(), other.bytes()).is_ok()
    }
}

impl Eq for JobKey {}

/// The reason why a file gives no job key.
#[derive(Debug, Error)]
pub enum BadKeyFile {
    /// It cannot be opened or read.
    #[error("{path}: {error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// It is no plain file: a directory, a device or a symbolic link.
    #[error("{0} is not a plain file")]
    NotAFile(PathBuf),
    /// Others can read or change it.
    #[error("{path} has mode {mode:o}: it must be readable for its owner alone (chmod 600)")]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It belongs to somebody else.
    #[error("{path} belongs to user {owner}, not to this process's user or root")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// Its text is no key.
    #[error("{0} must have 64 hexadecimal digits (`erd keygen` writes them), or 32 bytes")]
    NotAKey(PathBuf),
}

impl JobKey {
    /// The key of these bytes.
    #[must_use]
    pub fn new(bytes: &[u8; KEY_BYTES]) -> JobKey {
        JobKey(Arc::new(SecretBytes::new(bytes)))
    }

    /// A new random key.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn generate() -> io::Result<JobKey> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        let filled = aws_lc_rs::rand::fill(&mut *bytes);
        filled.map_err(|_| io::Error::other("the system gives no random bytes"))?;
        Ok(JobKey::new(&bytes))
    }

    /// Reads a key from a file that only its owner can read, or from a descriptor that was inherited: `/dev/fd/5`.
    ///
    /// # Errors
    /// See [`BadKeyFile`].
    pub fn read(path: &Path) -> Result<JobKey, BadKeyFile> {
        let unreadable = |error| BadKeyFile::Unreadable { path: path.to_owned(), error };
        // What is checked is what is read: the file itself, not the name.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        // Whoever handed a descriptor on has decided that this process may read it.
        let inherited = is_inherited(path);
        let flags = if inherited { flags } else { flags | OFlags::NOFOLLOW };
        let file = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::LOOP) => return Err(BadKeyFile::NotAFile(path.to_owned())),
            Err(error) => return Err(unreadable(error.into())),
        };
        let stat = rustix::fs::fstat(&file).map_err(|error| unreadable(error.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(BadKeyFile::NotAFile(path.to_owned()));
        }
        let mode = stat.st_mode & 0o777;
        if mode & 0o077 != 0 && !inherited {
            return Err(BadKeyFile::Open { path: path.to_owned(), mode });
        }
        if stat.st_uid != 0 && !inherited && stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(BadKeyFile::Foreign { path: path.to_owned(), owner: stat.st_uid });
        }
        let mut text = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX as usize + 1));
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(unreadable)?;
        JobKey::parse(&text).ok_or_else(|| BadKeyFile::NotAKey(path.to_owned()))
    }

    /// The key that a file's bytes tell: 64 hexadecimal digits, with white space around them, or the 32 bytes.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<JobKey> {
        // Text of that length is no random bytes: half a key in digits, or a pass phrase.
        if let Ok(bytes) = <&[u8; KEY_BYTES]>::try_from(text)
            && !text.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
        {
            return Some(JobKey::new(bytes));
        }
        let digits = text.trim_ascii();
        if digits.len() != 2 * KEY_BYTES {
            return None;
        }
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            *byte = (digit(0)? << 4 | digit(1)?) as u8;
        }
        Some(JobKey::new(&bytes))
    }

    /// The text that [`JobKey::parse`] reads. Wipe it after use.
    #[must_use]
    pub fn text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(2 * KEY_BYTES + 1));
        for byte in self.bytes() {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(digit.into(), 16).expect("below 16"));
            }
        }
        text.push('\n');
        text
    }

    /// Its bytes. Do not keep a copy.
    #[must_use]
    pub fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// A name of the key that tells nothing else about it: for logs, and for peers with different keys.
    #[must_use]
    pub fn id(&self) -> [u8; 8] {
        expand(&self.secret(), "erd key id", &[])
    }

    pub(crate) fn secret(&self) -> Secret {
        Secret(**self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn dir(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("erd-key-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn write(path: &Path, text: &[u8], mode: u32) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_key_is_read_as_it_was_written() {
        let (dir, key) = (dir("read"), JobKey::generate().unwrap());
        let path = dir.join("key");
        write(&path, key.text().as_bytes(), 0o600);
        assert_eq!(JobKey::read(&path).unwrap(), key);
        write(&path, &key.secret().0, 0o400);
        assert_eq!(JobKey::read(&path).unwrap(), key);
        assert_ne!(JobKey::generate().unwrap(), key);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let (dir, key) = (dir("open"), JobKey::generate().unwrap());
        let path = dir.join("key");
        for mode in [0o604, 0o640, 0o620, 0o602, 0o777] {
            write(&path, key.text().as_bytes(), mode);
            let error = JobKey::read(&path).unwrap_err().to_string();
            assert!(error.contains("chmod 600"), "{error}");
        }
        write(&path, key.text().as_bytes(), 0o600);
        symlink(&path, dir.join("link")).unwrap();
        assert!(matches!(JobKey::read(&dir.join("link")), Err(BadKeyFile::NotAFile(_))));
        assert!(matches!(JobKey::read(&dir), Err(BadKeyFile::NotAFile(_))));
        let none = JobKey::read(&dir.join("none")).unwrap_err();
        assert!(matches!(none, BadKeyFile::Unreadable { .. }));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn an_inherited_descriptor_can_be_read_again_and_again() {
        use std::os::fd::AsRawFd;
        let (dir, key) = (dir("fd"), JobKey::generate().unwrap());
        let path = dir.join("key");
        write(&path, key.text().as_bytes(), 0o644);
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for place in DESCRIPTORS {
            let name = format!("{place}/{}", file.as_raw_fd());
            assert_eq!(JobKey::read(Path::new(&name)).unwrap(), key);
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let digits = "5a".repeat(KEY_BYTES);
        assert!(JobKey::parse(digits.as_bytes()).is_some());
        assert!(JobKey::parse(format!("  {}\n\n", digits.to_uppercase()).as_bytes()).is_some());
        for text in [
            "",
            "5a",
            &digits[1..],
            &digits[32..],
            &format!("{digits}5a"),
            &digits.replace('a', "g"),
        ] {
            assert_eq!(JobKey::parse(text.as_bytes()), None, "{text}");
        }
    }

    /// What the bytes of a file are by the text of [`JobKey::parse`], in another way.
    fn by_definition(text: &[u8]) -> Option<[u8; KEY_BYTES]> {
        let is_text =
            text.iter().all(|byte| (b'!'..=b'~').contains(byte) || b" \t\n\x0c\r".contains(byte));
        if text.len() == KEY_BYTES && !is_text {
            return text.try_into().ok();
        }
        let digits = std::str::from_utf8(text).ok()?.trim_matches(|c| " \t\n\x0c\r".contains(c));
        let valid = digits.len() == 2 * KEY_BYTES && digits.chars().all(|c| c.is_ascii_hexdigit());
        let byte = |at: usize| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).expect("digits");
        valid.then(|| std::array::from_fn(byte))
    }

    #[test]
    fn within_bounds_every_text_is_the_key_that_it_says() {
        let judge = |text: &[u8]| {
            let expected = by_definition(text).map(|bytes| JobKey::new(&bytes));
            assert_eq!(JobKey::parse(text), expected, "{text:?}");
        };
        for len in 0..=2 * KEY_BYTES + 2 {
            for fill in 0..=u8::MAX {
                let mut text = vec![fill; len];
                judge(&text);
                for at in 0..len {
                    text[at] = b'7';
                    judge(&text);
                    text[at] = 0xc3;
                    judge(&text);
                    text[at] = fill;
                }
            }
        }
        let key = JobKey::new(&std::array::from_fn(|at| at as u8 * 7));
        let text = key.text();
        assert_eq!(JobKey::parse(text.as_bytes()), Some(key));
        for at in 0..text.len() {
            for value in 0..=u8::MAX {
                let mut changed = text.as_bytes().to_vec();
                changed[at] = value;
                judge(&changed);
                changed.truncate(at);
                judge(&changed);
            }
        }
    }

    #[test]
    fn the_name_of_a_key_is_its_own() {
        let (one, other) = (JobKey::new(&[1; 32]), JobKey::new(&[2; 32]));
        assert_eq!(one.id(), JobKey::new(&[1; 32]).id());
        assert_ne!(one.id(), other.id());
        assert_eq!(format!("{one:?}"), "JobKey(SecretBytes)");
    }
}
