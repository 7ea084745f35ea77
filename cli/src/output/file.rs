//! Files that get their name only once they are complete and on the disk.

use crate::error::fail;
use anyhow::Context;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A temporary file, in the folder where [`keep`](NewFile::keep) later gives it its name. If it is dropped before that,
/// it is removed.
pub(crate) struct NewFile {
    file: NamedTempFile,
    path: PathBuf,
    replace: bool,
}

impl NewFile {
    /// Creates a file that will have this path. At a symbolic link, the link stays, and the file that it names is
    /// replaced. What isn't a file, such as a device, is never replaced.
    pub(crate) fn create(path: &Path, replace: bool) -> anyhow::Result<NewFile> {
        let name = path.display();
        let path = match fs::metadata(path) {
            Err(_) if path.is_symlink() => fail!(Usage, "{name} is a link to a file that cannot be read"),
            Err(_) => path.to_owned(),
            Ok(there) if !there.is_file() => fail!(Usage, "{name} is not a regular file; name another one"),
            Ok(_) if !replace => fail!(Usage, "{name} exists; use --replace to overwrite it"),
            Ok(_) => fs::canonicalize(path).with_context(|| format!("cannot write {name}"))?,
        };
        let file = tempfile::Builder::new()
            .prefix(".bloomery-")
            // The permissions of any new file. The default of tempfile, 0600, is for secrets.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder(&path))
            .with_context(|| format!("cannot write into {}", folder(&path).display()))?;
        Ok(NewFile { file, path, replace })
    }

    pub(crate) fn as_file(&self) -> &File {
        self.file.as_file()
    }

    /// Syncs the file to the disk, then renames it to its path. If a file is there already, its permissions are kept.
    pub(crate) fn keep(self) -> anyhow::Result<()> {
        let NewFile { file, path, replace } = self;
        let cannot = || format!("cannot write {}", path.display());
        if let Ok(replaced) = fs::metadata(&path) {
            file.as_file().set_permissions(replaced.permissions()).with_context(cannot)?;
        }
        file.as_file().sync_all().with_context(cannot)?;
        if replace {
            file.persist(&path).map_err(|error| error.error).with_context(cannot)?;
        } else {
            file.persist_noclobber(&path).map_err(|error| error.error).with_context(cannot)?;
        }
        File::open(folder(&path)).and_then(|folder| folder.sync_all()).with_context(cannot)
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
