//! A small file system in memory that can be filled, for the file of a store.

use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// The size of the file system.
const BYTES: usize = 256 << 20;

/// A mounted file system. It is unmounted when it is dropped.
#[derive(Debug)]
pub struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// Mounts a file system at an empty directory. Fails if this process does not have the right to.
    pub fn mount(path: &Path) -> std::io::Result<SmallDisk> {
        let size = CString::new(format!("size={BYTES}")).expect("digits");
        mount("tmpfs", path, "tmpfs", MountFlags::empty(), Some(size.as_c_str()))?;
        Ok(SmallDisk { path: path.to_owned() })
    }

    /// Fills it to the last byte.
    pub fn fill(&self) -> std::io::Result<()> {
        let mut ballast = File::create(self.ballast())?;
        for size in [1 << 20, 1 << 12, 1] {
            let zeroes = vec![0; size];
            while ballast.write_all(&zeroes).is_ok() {}
        }
        Ok(())
    }

    /// Makes room again.
    pub fn empty(&self) -> std::io::Result<()> {
        std::fs::remove_file(self.ballast())
    }

    fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A process that was just killed may still have it open.
        if let Err(error) = unmount(&self.path, UnmountFlags::DETACH) {
            eprintln!("{} stays mounted: {error}", self.path.display());
        }
    }
}
