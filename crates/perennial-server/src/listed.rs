//! Rows of lists, with what a caller wants to know besides: what each instance waits for, or how it ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use perennial::explain::{Wait, WaitReason};
use perennial::history::{Ending, Turn};
use perennial::{Client, ClientError, InstanceKey, InstanceView, StoreError};
use serde::Serialize;

use crate::problem::Problem;
use crate::query::{Kind, Parameter, Query, parameter};
use crate::redact;

/// How many bytes of an output or error are shown.
const OUTCOME_BYTES: usize = 200;
/// How many outcomes are remembered.
const OUTCOMES: usize = 20_000;

pub(crate) const INCLUDE: Parameter = parameter(
    "include",
    Kind::SomeOf(&["waits", "outcome"]),
    "`waits` adds what each instance waits for, `outcome` how it ended.",
);

/// What is added to rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Include {
    waits: bool,
    outcome: bool,
}

impl Include {
    pub(crate) fn of(query: &Query) -> Include {
        let wanted = query.list("include");
        Include { waits: wanted.contains(&"waits"), outcome: wanted.contains(&"outcome") }
    }
}

/// Splits the text of a list that a stream follows into its filter and what is added to its rows.
pub(crate) fn include_of(list: &str) -> Result<(String, Include), Problem> {
    let (include, filter): (Vec<&str>, Vec<&str>) =
        list.split('&').partition(|pair| pair.split('=').next() == Some(INCLUDE.name));
    let include = Query::parse(Some(&include.join("&")), &[INCLUDE])?;
    Ok((filter.join("&"), Include::of(&include)))
}

/// A row of a list.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Listed {
    #[serde(flatten)]
    pub(crate) instance: InstanceView,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waits_for: Option<Vec<Wait>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    more_waits: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
}

/// How an instance ended, in a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Outcome {
    /// `output`, `error` or `reason`.
    kind: &'static str,
    text: String,
}

/// The outcomes of instances that were listed. They change only with the execution.
#[derive(Debug, Default)]
pub(crate) struct Outcomes(Mutex<BTreeMap<(InstanceKey, u64), Option<Outcome>>>);

impl Listed {
    /// A row without anything else.
    pub(crate) fn plain(instance: InstanceView) -> Listed {
        Listed { instance, waits_for: None, more_waits: None, outcome: None }
    }

    /// Rows with what is to be added to them.
    pub(crate) async fn of(
        client: &Client,
        rows: Vec<InstanceView>,
        include: Include,
        outcomes: &Arc<Outcomes>,
    ) -> Result<Vec<Listed>, Problem> {
        let mut explained = match include.waits {
            true => client.explain_each(&rows).await?,
            false => Vec::new(),
        }
        .into_iter();
        let mut listed = Vec::with_capacity(rows.len());
        for instance in rows {
            let outcome = match include.outcome && instance.status.is_final() {
                true => outcomes.of(client, &instance).await?,
                false => None,
            };
            let explained = explained.next();
            let more_waits = explained.as_ref().map(|explained| explained.more);
            let waits_for = explained.map(|explained| explained.waits);
            listed.push(Listed { instance, waits_for, more_waits, outcome });
        }
        Ok(listed)
    }

    /// Removes the texts of a wait and of those of its children.
    pub(crate) fn forget_text(wait: &mut Wait) {
        wait.text.clear();
        if let WaitReason::Child { waits, .. } = &mut wait.reason {
            waits.iter_mut().for_each(Listed::forget_text);
        }
    }

    /// The row as a caller sees it.
    pub(crate) fn shown(mut self, hides_payloads: bool) -> Listed {
        if hides_payloads {
            redact::instance(&mut self.instance);
            self.waits_for.iter_mut().flatten().for_each(redact::wait);
            if let Some(outcome) = &mut self.outcome {
                outcome.text = "hidden".to_owned();
            }
        }
        self
    }
}

impl Outcomes {
    async fn of(&self, client: &Client, instance: &InstanceView) -> Result<Option<Outcome>, Problem> {
        let place = (instance.key, instance.execution);
        if let Some(known) = self.lock().get(&place) {
            return Ok(known.clone());
        }
        let outcome = match last_turn(&client.bound_to(instance.key), instance).await {
            Ok(turn) => turn.as_ref().and_then(Turn::ending).and_then(outcome),
            // Deleted since it was listed, or damaged: the row is shown without it.
            Err(
                ClientError::NotFound { .. }
                | ClientError::AnotherInstance { .. }
                | ClientError::NoExecution { .. }
                | ClientError::Store { source: StoreError::CorruptRow(_), .. },
            ) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut kept = self.lock();
        if kept.len() >= OUTCOMES {
            kept.clear();
        }
        kept.insert(place, outcome.clone());
        Ok(outcome)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<(InstanceKey, u64), Option<Outcome>>> {
        self.0.lock().expect("no code panics while it holds the outcomes")
    }
}

async fn last_turn(client: &Client, instance: &InstanceView) -> Result<Option<Turn>, ClientError> {
    let last = client.last_turn(&instance.id, instance.execution).await?;
    let page = client.turn_page(&instance.id, instance.execution, last.saturating_sub(1), 1).await?;
    Ok(page.turns.into_iter().next())
}

fn outcome(ending: &Ending) -> Option<Outcome> {
    let (kind, text) = match ending {
        Ending::OrchestrationCompleted { output } => ("output", output.as_json()),
        Ending::OrchestrationFailed { error } => ("error", error.as_json()),
        Ending::OrchestrationCancelled { reason, .. } | Ending::OrchestrationTerminated { reason } => {
            ("reason", reason.as_str())
        }
        Ending::OrchestrationContinuedAsNew { .. } => return None,
    };
    let end = (0..=OUTCOME_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let cut = if end < text.len() { "…" } else { "" };
    Some(Outcome { kind, text: format!("{}{cut}", &text[..end]) })
}
