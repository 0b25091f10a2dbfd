//! What was recorded, and the disk that a power failure at any point of it leaves.
//!
//! What was synced is there. Of what was written since, each sector of 512 bytes is there or not, whatever the order of the
//! writes. Files appear and vanish in the order in which that was asked for, up to some point after the last sync of their
//! directory. After a sync that failed, its writes count as done for all later syncs, as in the kernel: they may be lost even
//! if a later sync succeeds.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use perennial_testkit::Rng;

/// The part of a disk that is written at once or not at all.
const SECTOR: u64 = 512;
const HEADER: usize = 21;

/// A recording: everything that happened below a directory, in order.
#[derive(Debug)]
pub(super) struct Recording {
    root: PathBuf,
    bytes: Vec<u8>,
    events: Vec<Event>,
}

#[derive(Clone, Debug)]
struct Event {
    kind: u8,
    /// The number of the file in its file system.
    file: u64,
    offset: u64,
    /// The place of its bytes.
    bytes: Range<usize>,
}

/// What is left after a power failure.
#[derive(Debug, Default)]
pub(super) struct Remains {
    /// The lines that callers had logged.
    pub(super) callers: Vec<u8>,
    /// The lines that activities had logged.
    pub(super) effects: Vec<u8>,
    /// The files of the store, by name.
    pub(super) files: BTreeMap<String, Vec<u8>>,
    /// How many sectors that were written and not synced are not there.
    pub(super) lost_sectors: usize,
    /// How many are there.
    pub(super) kept_sectors: usize,
}

/// How much of what was not synced is there.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Nothing,
    Everything,
    Some { percent: u64 },
}

enum Change {
    Write { offset: u64, bytes: Range<usize> },
    Truncate { length: u64 },
}

#[derive(Default)]
struct File {
    durable: Vec<u8>,
    pending: Vec<Change>,
}

enum Entry {
    Made(String, usize),
    Unlinked(String),
    Renamed(String, String),
}

/// The disk while a recording is followed.
#[derive(Default)]
struct Disk {
    files: Vec<File>,
    /// The file of each number.
    by_number: BTreeMap<u64, usize>,
    /// The number of the directory of the store, once it was opened.
    directory: Option<u64>,
    current: BTreeMap<String, usize>,
    durable: BTreeMap<String, usize>,
    pending: Vec<Entry>,
}

impl Recording {
    /// Reads a record of what happened below a directory.
    pub(super) fn read(root: &Path, record: &Path) -> Result<Recording, String> {
        let bytes = std::fs::read(record).map_err(|error| format!("there is no record: {error}"))?;
        let mut events = Vec::new();
        let mut place = 0;
        while place < bytes.len() {
            let header = bytes.get(place..place + HEADER).ok_or("the record is cut off")?;
            let number =
                |from: usize| u64::from_ne_bytes(header[from..from + 8].try_into().expect("8 bytes"));
            let length = u32::from_ne_bytes(header[17..21].try_into().expect("4 bytes")) as usize;
            let first = place + HEADER;
            let range = first..first + length;
            events.push(Event { kind: header[0], file: number(1), offset: number(9), bytes: range });
            place = first + length;
        }
        if place != bytes.len() {
            return Err("the record is cut off".to_owned());
        }
        Ok(Recording { root: root.to_owned(), bytes, events })
    }

    /// How many calls were recorded.
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// How many syncs were recorded.
    pub(super) fn syncs(&self) -> usize {
        self.events.iter().filter(|event| event.kind == b'S').count()
    }

    /// Draws a moment for a power failure. Every second one comes right after something was acknowledged.
    pub(super) fn draw_cut(&self, rng: &mut Rng) -> usize {
        let cut = rng.below(self.events.len() + 1);
        if rng.percent(50) {
            return cut;
        }
        let is_acknowledged = |event: &Event| {
            event.kind == b'W' && {
                let text = &self.bytes[event.bytes.clone()];
                text.len() < 4_096 && contains(text, "·ok·".as_bytes())
            }
        };
        let later = self.events[cut..].iter().position(is_acknowledged);
        later.map_or(cut, |later| cut + later + 1)
    }

    /// What a power failure leaves after so many calls.
    pub(super) fn remains(&self, cut: usize, rng: &mut Rng) -> Remains {
        let fate = match rng.below(6) {
            0 => Fate::Nothing,
            1 => Fate::Everything,
            _ => Fate::Some { percent: *rng.pick(&[3, 20, 50, 80, 97]) },
        };
        let (mut disk, mut remains) = (Disk::default(), Remains::default());
        let mut journals: BTreeMap<u64, bool> = BTreeMap::new();
        for event in &self.events[..cut] {
            let bytes = &self.bytes[event.bytes.clone()];
            match event.kind {
                b'O' | b'o' => {
                    let Some(name) = self.name(bytes) else { continue };
                    match name.strip_prefix("logs/") {
                        Some(log) => drop(journals.insert(event.file, log == "callers")),
                        None => disk.opened(&name, event),
                    }
                }
                b'W' => match journals.get(&event.file) {
                    Some(true) => remains.callers.extend(bytes),
                    Some(false) => remains.effects.extend(bytes),
                    None => disk.change(
                        event.file,
                        Change::Write { offset: event.offset, bytes: event.bytes.clone() },
                    ),
                },
                b'T' => disk.change(event.file, Change::Truncate { length: event.offset }),
                b'S' => disk.sync(event.file, &self.bytes),
                b's' => disk.fail_sync(event.file, &self.bytes, rng),
                b'U' => disk.unlinked(self.name(bytes)),
                b'R' => disk.renamed(bytes, |path| self.name(path)),
                _ => {}
            }
        }
        disk.lose_power(&self.bytes, fate, rng, &mut remains);
        remains
    }

    /// The name of a path below the root.
    fn name(&self, path: &[u8]) -> Option<String> {
        let path = Path::new(std::str::from_utf8(path).ok()?);
        Some(path.strip_prefix(&self.root).ok()?.to_str()?.to_owned())
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

impl Disk {
    fn opened(&mut self, name: &str, event: &Event) {
        if name == "store" {
            self.directory = Some(event.file);
            return;
        }
        let file = match self.current.get(name) {
            Some(file) if event.kind == b'o' => *file,
            _ => {
                self.files.push(File::default());
                let file = self.files.len() - 1;
                self.pending.push(Entry::Made(name.to_owned(), file));
                file
            }
        };
        self.current.insert(name.to_owned(), file);
        self.by_number.insert(event.file, file);
    }

    fn change(&mut self, number: u64, change: Change) {
        if let Some(file) = self.by_number.get(&number) {
            self.files[*file].pending.push(change);
        }
    }

    fn sync(&mut self, number: u64, recorded: &[u8]) {
        if self.directory == Some(number) {
            return std::mem::take(&mut self.pending)
                .into_iter()
                .for_each(|entry| entry.apply(&mut self.durable));
        }
        let Some(file) = self.by_number.get(&number) else { return };
        let file = &mut self.files[*file];
        for change in std::mem::take(&mut file.pending) {
            change.apply(&mut file.durable, recorded, |_| true);
        }
    }

    /// The writes are in the memory of the machine, and no later sync writes them.
    fn fail_sync(&mut self, number: u64, recorded: &[u8], rng: &mut Rng) {
        let Some(file) = self.by_number.get(&number) else { return };
        let file = &mut self.files[*file];
        for change in std::mem::take(&mut file.pending) {
            change.apply(&mut file.durable, recorded, |_| rng.percent(50));
        }
    }

    fn unlinked(&mut self, name: Option<String>) {
        if let Some(name) = name {
            self.current.remove(&name);
            self.pending.push(Entry::Unlinked(name));
        }
    }

    fn renamed(&mut self, both: &[u8], name: impl Fn(&[u8]) -> Option<String>) {
        let mut parts = both.split(|byte| *byte == b'\n').map(name);
        if let (Some(Some(from)), Some(Some(to))) = (parts.next(), parts.next()) {
            let entry = Entry::Renamed(from, to);
            entry.apply(&mut self.current);
            self.pending.push(entry);
        }
    }

    fn lose_power(mut self, recorded: &[u8], fate: Fate, rng: &mut Rng, remains: &mut Remains) {
        let kept = match fate {
            Fate::Nothing => 0,
            Fate::Everything => self.pending.len(),
            Fate::Some { .. } => rng.below(self.pending.len() + 1),
        };
        self.pending.drain(..kept).for_each(|entry| entry.apply(&mut self.durable));
        for (name, file) in &self.durable {
            let file = &mut self.files[*file];
            for change in std::mem::take(&mut file.pending) {
                change.apply(&mut file.durable, recorded, |_| {
                    let is_kept = match fate {
                        Fate::Nothing => false,
                        Fate::Everything => true,
                        Fate::Some { percent } => rng.percent(percent),
                    };
                    *(if is_kept { &mut remains.kept_sectors } else { &mut remains.lost_sectors }) += 1;
                    is_kept
                });
            }
            let name = name.strip_prefix("store/").unwrap_or(name);
            remains.files.insert(name.to_owned(), file.durable.clone());
        }
    }
}

impl Entry {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Entry::Made(name, file) => drop(names.insert(name.clone(), *file)),
            Entry::Unlinked(name) => drop(names.remove(name)),
            Entry::Renamed(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
        }
    }
}

impl Change {
    /// Applies the sectors that are kept.
    fn apply(self, content: &mut Vec<u8>, recorded: &[u8], mut is_kept: impl FnMut(u64) -> bool) {
        match self {
            Change::Truncate { length } => {
                if is_kept(length) {
                    content.resize(length as usize, 0);
                }
            }
            Change::Write { offset, bytes } => {
                let (mut from, end) = (offset, offset + bytes.len() as u64);
                while from < end {
                    let until = end.min((from / SECTOR + 1) * SECTOR);
                    if is_kept(from) {
                        let source = bytes.start + (from - offset) as usize;
                        let part = &recorded[source..source + (until - from) as usize];
                        if content.len() < until as usize {
                            content.resize(until as usize, 0);
                        }
                        content[from as usize..until as usize].copy_from_slice(part);
                    }
                    from = until;
                }
            }
        }
    }
}
