//! The folder of a backup: a file for each key, the manifest, and the checksums of all these files, as `sha256sum`
//! writes and checks them.
//!
//! While a backup is written, its folder is called `NAME.incomplete`.

use super::manifest::{FORMAT, Manifest, Saved};
use crate::error::{Failure, fail};
use anyhow::Context;
use ring::digest::{self, SHA256};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

pub(in crate::command) const MANIFEST: &str = "manifest.json";
pub(in crate::command) const SUMS: &str = "SHA256SUMS";

/// A folder that a backup is being written to.
pub(super) struct Incomplete {
    /// Its name when it is complete.
    folder: PathBuf,
    pub(super) path: PathBuf,
    /// Held open, and locked, so that two backups don't write into one folder.
    lock: File,
    sums: String,
}

impl Incomplete {
    /// Creates the folder, or takes the one of a backup that was interrupted, without its files.
    pub(super) fn create(folder: &Path) -> anyhow::Result<Incomplete> {
        let folder: PathBuf = folder.components().collect();
        let Some(name) = folder.file_name() else {
            fail!(Usage, "{} has no name of its own; name a folder that doesn't exist", folder.display());
        };
        if folder.exists() {
            fail!(Usage, "{} exists; name a folder that doesn't exist", folder.display());
        }
        let path = folder.with_file_name([name, OsStr::new(".incomplete")].join(OsStr::new("")));
        let cannot = || format!("cannot write into {}", path.display());
        match fs::create_dir(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error).with_context(cannot),
            _ => {}
        }
        let lock = File::open(&path).with_context(cannot)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => fail!(Usage, "another backup writes into {}", path.display()),
            Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
        }
        for file in fs::read_dir(&path).with_context(cannot)? {
            let file = file.with_context(cannot)?.file_name();
            if !is_ours(&file) {
                fail!(Usage, "{} has {}, which no backup wrote", path.display(), file.display());
            }
            fs::remove_file(path.join(file)).with_context(cannot)?;
        }
        Ok(Incomplete { folder, path, lock, sums: String::new() })
    }

    /// Creates a file.
    pub(super) fn file(&self, name: &str) -> anyhow::Result<File> {
        let path = self.path.join(name);
        File::create_new(&path).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Removes a file that turned out not to be needed.
    pub(super) fn discard(&self, name: &str) -> anyhow::Result<()> {
        let path = self.path.join(name);
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))
    }

    /// Syncs a complete file to the disk, and notes its checksum. Returns its length.
    pub(super) fn seal(&mut self, name: &str, file: &File) -> anyhow::Result<u64> {
        let path = self.path.join(name);
        let sealed = file.sync_all().and_then(|()| sha256(&path));
        let (sum, bytes) = sealed.with_context(|| format!("cannot write {}", path.display()))?;
        self.sums.push_str(&format!("{sum}  {name}\n"));
        Ok(bytes)
    }

    /// Writes the manifest and the checksums, and gives the folder its name.
    pub(super) fn finish(mut self, manifest: &Manifest) -> anyhow::Result<()> {
        let mut file = self.file(MANIFEST)?;
        let cannot = format!("cannot write {}", self.folder.display());
        let text = serde_json::to_vec_pretty(manifest)?;
        file.write_all(&text).and_then(|()| file.write_all(b"\n")).with_context(|| cannot.clone())?;
        self.seal(MANIFEST, &file)?;
        let mut file = self.file(SUMS)?;
        let parent = self.folder.parent().filter(|parent| !parent.as_os_str().is_empty());
        file.write_all(self.sums.as_bytes())
            .and_then(|()| file.sync_all())
            .and_then(|()| self.lock.sync_all())
            .and_then(|()| fs::rename(&self.path, &self.folder))
            .and_then(|()| File::open(parent.unwrap_or(Path::new(".")))?.sync_all())
            .context(cannot)
    }
}

/// Whether a backup may have written a file of this name. The name of a key's file begins with a number.
fn is_ours(name: &OsStr) -> bool {
    let digits = name.as_encoded_bytes().split(|byte| *byte == b'-').next().unwrap_or_default();
    name == MANIFEST || name == SUMS || digits.len() >= 6 && digits.iter().all(u8::is_ascii_digit)
}

/// A complete backup.
pub(in crate::command) struct Backup {
    folder: PathBuf,
    pub(in crate::command) manifest: Manifest,
    /// The checksum of each file.
    sums: BTreeMap<String, String>,
}

impl Backup {
    /// Reads the manifest, and checks it.
    pub(in crate::command) fn open(folder: &Path) -> anyhow::Result<Backup> {
        let place = folder.display();
        let read = |name| match fs::read(folder.join(name)) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                let has = if folder.is_dir() { "it has no" } else { "there is no folder with" };
                Err(Failure::Data(format!("{place} is not a complete backup: {has} {name}")).into())
            }
            bytes => bytes.with_context(|| format!("cannot read {}", folder.join(name).display())),
        };
        let sums = String::from_utf8_lossy(&read(SUMS)?).into_owned();
        let lines = sums.lines().filter_map(|line| line.split_once("  "));
        let sums: BTreeMap<String, String> = lines.map(|(sum, name)| (name.into(), sum.into())).collect();
        let text: Vec<u8> = read(MANIFEST)?;
        if sums.get(MANIFEST) != Some(&hex(digest::digest(&SHA256, &text).as_ref())) {
            fail!(Data, "{place}: {MANIFEST} is damaged: {SUMS} has another checksum");
        }
        let Ok(manifest) = serde_json::from_slice::<Manifest>(&text) else {
            fail!(Data, "{place}: {MANIFEST} is not the manifest of a backup");
        };
        if manifest.format != FORMAT {
            let found = manifest.format;
            fail!(Data, "{place}: its manifest has version {found}; this program reads version {FORMAT}");
        }
        Ok(Backup { folder: folder.to_owned(), manifest, sums })
    }

    /// Checks the file of a key, and returns its path, or else what is wrong.
    pub(in crate::command) fn file(&self, saved: &Saved) -> Result<PathBuf, String> {
        let name = &saved.file;
        // Whatever a manifest says, no file outside of the folder is read.
        if Path::new(name).file_name() != Some(OsStr::new(name)) {
            return Err(format!("{name} is not the name of a file in a backup"));
        }
        let sum = self.sums.get(name).ok_or_else(|| format!("{SUMS} has no checksum of {name}"))?;
        let path = self.folder.join(name);
        match sha256(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(format!("{name} is missing")),
            Err(error) => Err(format!("cannot read {name}: {error}")),
            Ok((_, bytes)) if bytes != saved.bytes => {
                Err(format!("{name} has {bytes} bytes, and should have {}", saved.bytes))
            }
            Ok((found, _)) if found != *sum => Err(format!("{name} is damaged: {SUMS} has another checksum")),
            Ok(_) => Ok(path),
        }
    }

    /// The names of files that the manifest doesn't mention.
    pub(in crate::command) fn strays(&self) -> io::Result<Vec<String>> {
        let known = |name: &str| {
            name == MANIFEST || name == SUMS || self.manifest.keys.iter().any(|saved| saved.file == name)
        };
        let mut names: Vec<String> = fs::read_dir(&self.folder)?
            .map(|file| Ok(file?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<_>>()?;
        names.retain(|name| !known(name));
        names.sort();
        Ok(names)
    }
}

/// The SHA-256 of a file as hexadecimal digits, and its length.
fn sha256(path: &Path) -> io::Result<(String, u64)> {
    let (mut file, mut context) = (File::open(path)?, digest::Context::new(&SHA256));
    let (mut piece, mut bytes) = (vec![0; 1 << 18], 0);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok((hex(context.finish().as_ref()), bytes)),
            read => {
                context.update(&piece[..read]);
                bytes += read as u64;
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
