//! Shrinking: a case that fails is made smaller as long as it fails on the same invariant.
//!
//! One part after the other is left out. What a run draws after its plan depends on everything that happens in it,
//! so each smaller case is tried with several salts: one of them usually meets the same violation.

use std::fmt;

use super::case::{Case, Cut, Ease};
use super::{Mishap, Simulation};

/// The number of draws that each smaller case is tried with.
const SALTS: u64 = 6;

/// A failing case and the smallest one that was found for it.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The smaller case, with its violation.
    pub case: Case,
    /// The violation, with the last lines of its trace.
    pub mishap: Mishap,
    /// The sizes before and after.
    pub sizes: (Size, Size),
    /// The number of runs it took.
    pub runs: u64,
}

/// The size of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// How many nodes run, at most.
    pub processes: usize,
    /// Instances that callers start.
    pub instances: usize,
    /// Statements of their programs.
    pub statements: usize,
    /// Crashes, pauses, stops, seizures and changes of the clock.
    pub faults: u64,
    /// The actions of callers until the faults end.
    pub actions: u64,
    /// The choices that can be left out.
    pub choices: usize,
}

impl Size {
    /// The sum of everything.
    pub fn total(&self) -> u64 {
        let counted = self.processes + self.instances + self.statements + self.choices;
        counted as u64 + self.faults + self.actions
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Size { processes, instances, statements, faults, actions, choices } = self;
        write!(
            f,
            "{processes} processes, {instances} instances, {statements} statements, {faults} faults, {actions} actions \
             of callers, {choices} choices"
        )
    }
}

/// A case that fails, and what its run counted.
struct Failed {
    case: Case,
    mishap: Mishap,
    size: Size,
    faults_ms: u64,
    programs: Vec<(usize, usize)>,
}

/// Makes a failing case smaller, with at most this many runs. `None` if it does not fail.
///
/// # Errors
///
/// If a name in the case is not known.
pub fn shrink(case: &Case, max_runs: u64) -> Result<Option<Shrunk>, String> {
    let mut shrinker = Shrinker { runs: 0, max_runs, invariant: None };
    let Some(mut smallest) = shrinker.try_case(case)? else { return Ok(None) };
    shrinker.invariant = Some(smallest.mishap.invariant().to_owned());
    let before = smallest.size;
    while shrinker.pass(&mut smallest)? {}
    let Failed { mut case, mishap, size, .. } = smallest;
    case.violation = mishap.what.clone();
    Ok(Some(Shrunk { case, mishap, sizes: (before, size), runs: shrinker.runs }))
}

struct Shrinker {
    runs: u64,
    max_runs: u64,
    /// The invariant that a smaller case has to violate.
    invariant: Option<String>,
}

impl Shrinker {
    /// Tries to leave out each part. Returns whether one could be, and another pass may succeed.
    fn pass(&mut self, smallest: &mut Failed) -> Result<bool, String> {
        let mut has_shrunk = false;
        let mut next = 0;
        loop {
            // The candidates change with each success; those before were tried.
            let candidates = smallest.candidates();
            let Some(cut) = candidates.get(next) else { return Ok(has_shrunk) };
            if self.runs >= self.max_runs {
                return Ok(false);
            }
            match self.try_cut(smallest, cut)? {
                Some(smaller) => {
                    *smallest = smaller;
                    has_shrunk = true;
                }
                None => next += 1,
            }
        }
    }

    fn try_cut(&mut self, failed: &Failed, cut: &Cut) -> Result<Option<Failed>, String> {
        let mut case = failed.case.clone();
        case.add(cut.clone());
        for salt in (failed.case.salt..failed.case.salt + SALTS).chain([0]) {
            let smaller = self.try_case(&Case { salt, ..case.clone() })?;
            if let Some(smaller) = smaller.filter(|smaller| smaller.size.total() < failed.size.total()) {
                return Ok(Some(smaller));
            }
        }
        Ok(None)
    }

    fn try_case(&mut self, case: &Case) -> Result<Option<Failed>, String> {
        self.runs += 1;
        let simulation = case.simulation()?;
        let (mut size, faults_ms) = (simulation.size(), simulation.plan.faults_ms);
        let programs = simulation.programs();
        let Err(mishap) = simulation.run() else { return Ok(None) };
        if self.invariant.as_deref().is_some_and(|invariant| invariant != mishap.invariant()) {
            return Ok(None);
        }
        (size.faults, size.actions) = mishap.counted;
        size.faults -= case.cuts.iter().filter(|cut| matches!(cut, Cut::Fault(_))).count() as u64;
        size.choices -= case.cuts.iter().filter(|cut| matches!(cut, Cut::Ease(_))).count();
        Ok(Some(Failed { case: case.clone(), mishap, size, faults_ms, programs }))
    }
}

impl Failed {
    /// The parts that can be left out, large ones first.
    fn candidates(&self) -> Vec<Cut> {
        let Size { processes, instances, actions, .. } = self.size;
        let mut cuts: Vec<Cut> = (1..processes).map(Cut::ProcessesAfter).collect();
        cuts.extend(
            [2, 4]
                .into_iter()
                .map(|part| self.faults_ms / part)
                .filter(|ms| *ms >= 1_000)
                .map(Cut::FaultsAfter),
        );
        cuts.extend(
            [0, actions / 4, actions / 2, actions - actions / 4]
                .into_iter()
                .filter(|it| *it < actions)
                .map(Cut::ActionsAfter),
        );
        if instances > 1 {
            cuts.extend((0..instances).rev().map(Cut::Instance));
        }
        cuts.extend((0..self.mishap.counted.0).map(Cut::Fault));
        cuts.extend(Ease::ALL.iter().map(|ease| Cut::Ease(ease.name.to_owned())));
        for (instance, (statements, handlers)) in self.programs.iter().copied().enumerate() {
            cuts.extend((0..handlers).rev().map(|number| Cut::Handler { instance, number }));
            cuts.extend((0..statements).map(|number| Cut::Statement { instance, number }));
        }
        cuts.retain(|cut| {
            !self.case.cuts.contains(cut)
                || matches!(cut, Cut::Statement { .. } | Cut::Handler { .. } | Cut::Instance(_))
        });
        cuts
    }
}

impl Case {
    /// Leaves out one more part. A number replaces an earlier one of its kind.
    fn add(&mut self, cut: Cut) {
        let is_replaced = |other: &Cut| {
            matches!(
                (other, &cut),
                (Cut::ProcessesAfter(_), Cut::ProcessesAfter(_))
                    | (Cut::ActionsAfter(_), Cut::ActionsAfter(_))
                    | (Cut::FaultsAfter(_), Cut::FaultsAfter(_))
            )
        };
        self.cuts.retain(|other| !is_replaced(other));
        self.cuts.push(cut);
    }
}

impl Simulation {
    /// Its size, without what only its run shows.
    fn size(&self) -> Size {
        let programs = self.programs();
        Size {
            processes: self.processes.len(),
            instances: programs.len(),
            statements: programs.iter().map(|(statements, _)| statements).sum(),
            choices: Ease::ALL.len(),
            ..Size::default()
        }
    }

    /// The statements and handlers of each program.
    fn programs(&self) -> Vec<(usize, usize)> {
        let subjects = self.callers.subjects.iter();
        subjects.map(|subject| (subject.program.statements(), subject.program.handlers.len())).collect()
    }
}
