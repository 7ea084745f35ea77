//! Files that get their name only once they are complete and on the disk.

use crate::error::fail;
use anyhow::Context;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::NamedTempFile;

/// Creates a temporary file in the folder of `path`, which [`keep`] later renames to `path`. If the result is dropped
/// before that, the file is removed.
pub(crate) fn temporary(path: &Path, replace: bool) -> anyhow::Result<NamedTempFile> {
    if !replace && path.exists() {
        fail!(Usage, "{} exists; use --replace to overwrite it", path.display());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tempfile::Builder::new()
        .prefix(".bloomery-")
        // The permissions of any new file. The default of tempfile, 0600, is for secrets.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .with_context(|| format!("cannot write into {}", folder.display()))
}

/// Syncs the file to the disk, then renames it to `path`. If a file is there already, its permissions are kept.
pub(crate) fn keep(file: NamedTempFile, path: &Path, replace: bool) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    if let Ok(replaced) = std::fs::metadata(path) {
        file.as_file().set_permissions(replaced.permissions()).with_context(cannot)?;
    }
    file.as_file().sync_all().with_context(cannot)?;
    if replace {
        file.persist(path).map_err(|error| error.error).with_context(cannot)?;
    } else {
        file.persist_noclobber(path).map_err(|error| error.error).with_context(cannot)?;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).with_context(cannot)
}
