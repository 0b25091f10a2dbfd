//! How an activity is to be run: tunables that travel with its schedule.
//!
//! They are no part of a decision's identity. In a replay the recorded ones win, so they can be tuned by a
//! deployment for activities that are scheduled after it.

use serde::{Deserialize, Serialize};

/// Retry, timeouts and routing of one activity. The default is one attempt, no timeouts and no tag.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ActivityOptions {
    /// When a failed attempt is tried again. `None` means a single attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// How long one attempt may wait for a worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_timeout_ms: Option<u64>,
    /// How long one attempt may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt_timeout_ms: Option<u64>,
    /// How long all attempts together may take, waiting included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_timeout_ms: Option<u64>,
    /// The longest silence between two heartbeats of an attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_timeout_ms: Option<u64>,
    /// Only workers that serve this tag run the activity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// How often and how soon a failed activity is tried again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryPolicy {
    /// The number of attempts in all, the first included.
    pub max_attempts: u32,
    /// The pause between two attempts.
    pub backoff: Backoff,
    /// How far a pause may stray from its value, as a share of it in percent.
    pub jitter_percent: u8,
    /// Errors whose kind is listed here are final.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub non_retryable: Vec<String>,
}

/// The pause before the next attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Backoff {
    /// The same pause each time.
    Fixed {
        /// The pause.
        pause_ms: u64,
    },
    /// A pause that grows by the same amount each time.
    Linear {
        /// The first pause, and what each further one adds.
        step_ms: u64,
        /// The longest pause.
        max_ms: u64,
    },
    /// A pause that is multiplied each time.
    Exponential {
        /// The first pause.
        first_ms: u64,
        /// What each pause is multiplied by, in percent: 200 doubles it.
        factor_percent: u32,
        /// The longest pause.
        max_ms: u64,
    },
}

impl RetryPolicy {
    /// Up to `max_attempts` attempts with doubling pauses from 1 s to 100 s and 10 % of jitter.
    pub fn exponential(max_attempts: u32) -> RetryPolicy {
        let backoff = Backoff::Exponential { first_ms: 1_000, factor_percent: 200, max_ms: 100_000 };
        RetryPolicy { max_attempts, backoff, jitter_percent: 10, non_retryable: Vec::new() }
    }

    /// Up to `max_attempts` attempts with the same pause before each further one.
    pub fn fixed(max_attempts: u32, pause_ms: u64) -> RetryPolicy {
        RetryPolicy {
            max_attempts,
            backoff: Backoff::Fixed { pause_ms },
            jitter_percent: 0,
            non_retryable: Vec::new(),
        }
    }
}
