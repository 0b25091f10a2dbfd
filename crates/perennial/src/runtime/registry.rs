//! The registered code of this node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use perennial_core::node::PeerCode;
use perennial_core::shard::{HandlerSource, Observed, ObservedNames};
use perennial_core::store::{NodeInfo, Served};
use perennial_core::{Handlers, NamePattern, NotOfType, OrchestrationHandler, Payload, check_name};
use semver::Version;

use super::builder::RuntimeOptions;
use crate::activity::ActivityHandler;
use crate::error::StartError;
use crate::registrations::VersionPolicy;
use crate::shared_state::{SharedState, StateType};
use crate::similar::similar;
use crate::store_url::system_now_ms;
use crate::typed::{Used, UsedKind};

#[derive(Default)]
pub(crate) struct Registry {
    orchestrations: BTreeMap<String, BTreeMap<Version, Code>>,
    activities: BTreeMap<String, RegisteredActivity>,
    state: SharedState,
    version_policies: BTreeMap<String, VersionPolicy>,
    fallback_orchestrations: BTreeMap<NamePattern, BTreeMap<Version, Code>>,
    fallback_activities: BTreeMap<NamePattern, Arc<dyn ActivityHandler>>,
    peer_code: RwLock<PeerCode>,
}

/// The code of one version of an orchestration.
struct Code {
    /// As it was registered, which is the form that histories contain.
    version: String,
    handler: Arc<dyn OrchestrationHandler>,
    /// Its `uses(…)` declarations.
    uses: Vec<Used>,
}

struct RegisteredActivity {
    handler: Arc<dyn ActivityHandler>,
    /// The types of the state that it reads.
    state: Vec<StateType>,
}

impl Registry {
    pub(crate) fn add_orchestration(
        &mut self,
        name: &str,
        version: &str,
        handler: Arc<dyn OrchestrationHandler>,
        uses: Vec<Used>,
    ) -> Result<(), StartError> {
        check(name)?;
        let versions = self.orchestrations.entry(name.to_owned()).or_default();
        add_version(versions, name, version, handler, uses)
    }

    pub(crate) fn add_fallback_orchestration(
        &mut self,
        pattern: &str,
        version: &str,
        handler: Arc<dyn OrchestrationHandler>,
    ) -> Result<(), StartError> {
        let versions = self.fallback_orchestrations.entry(parse(pattern)?).or_default();
        add_version(versions, pattern, version, handler, Vec::new())
    }

    pub(crate) fn add_fallback_activity(
        &mut self,
        pattern: &str,
        handler: Arc<dyn ActivityHandler>,
    ) -> Result<(), StartError> {
        match self.fallback_activities.insert(parse(pattern)?, handler) {
            Some(_) => Err(StartError::RegisteredTwice { what: format!("fallback activity {pattern:?}") }),
            None => Ok(()),
        }
    }

    pub(crate) fn add_activity(
        &mut self,
        name: &str,
        handler: Arc<dyn ActivityHandler>,
        state: Vec<StateType>,
    ) -> Result<(), StartError> {
        check(name)?;
        match self.activities.insert(name.to_owned(), RegisteredActivity { handler, state }) {
            Some(_) => Err(StartError::RegisteredTwice { what: format!("activity {name:?}") }),
            None => Ok(()),
        }
    }

    pub(crate) fn add_state<S: Send + Sync + 'static>(&mut self, state: S) -> Result<(), StartError> {
        if self.state.insert(state) { Err(state_twice(std::any::type_name::<S>())) } else { Ok(()) }
    }

    pub(crate) fn replace_state<S: Send + Sync + 'static>(&mut self, state: S) {
        self.state.insert(state);
    }

    pub(crate) fn add_version_policy(&mut self, name: &str, policy: VersionPolicy) -> Result<(), StartError> {
        check(name)?;
        if let VersionPolicy::Exact(version) = &policy {
            parse_version(name, version)?;
        }
        match self.version_policies.insert(name.to_owned(), policy) {
            Some(_) => {
                Err(StartError::RegisteredTwice { what: format!("version policy of orchestration {name:?}") })
            }
            None => Ok(()),
        }
    }

    /// Checks that all declarations are met, and reports everything that is missing at once. `stands_in`
    /// returns whether an activity is replaced by something else.
    pub(crate) fn check(&self, stands_in: &dyn Fn(&str) -> bool) -> Result<(), StartError> {
        self.check_code(stands_in)?;
        self.check_state(stands_in)
    }

    /// Checks that all code is registered that orchestrations and version policies declare.
    pub(crate) fn check_code(&self, stands_in: &dyn Fn(&str) -> bool) -> Result<(), StartError> {
        let is_replaced = |used: &Used| used.kind != UsedKind::Orchestration && stands_in(used.name);
        let mut missing = Vec::new();
        for (name, versions) in &self.orchestrations {
            for code in versions.values() {
                let unmet = code.uses.iter().filter(|used| !self.has(used) && !is_replaced(used));
                missing.extend(
                    unmet.map(|used| format!("orchestration {name:?} {} uses the {used}", code.version)),
                );
            }
        }
        for (name, policy) in &self.version_policies {
            match policy {
                VersionPolicy::Exact(version) if self.handler(name, version).is_none() => {
                    missing
                        .push(format!("the version policy of orchestration {name:?} uses version {version}"));
                }
                VersionPolicy::Exact(_) | VersionPolicy::Latest => {}
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(StartError::Missing { missing }) }
    }

    fn check_state(&self, stands_in: &dyn Fn(&str) -> bool) -> Result<(), StartError> {
        let mut missing = Vec::new();
        for (name, activity) in self.activities.iter().filter(|(name, _)| !stands_in(name)) {
            let unmet = activity.state.iter().filter(|wanted| !self.state.has(wanted));
            missing.extend(unmet.map(|wanted| format!("activity {name:?} needs a {}", wanted.name())));
        }
        if missing.is_empty() { Ok(()) } else { Err(StartError::MissingState { missing }) }
    }

    /// Runs all checks, and gives activities their state once instead of with each attempt.
    pub(crate) fn ready(mut self) -> Result<Registry, StartError> {
        self.check(&|_| false)?;
        for activity in self.activities.values_mut() {
            let declared = std::mem::take(&mut activity.state);
            activity.handler = self.state.given_to(Arc::clone(&activity.handler), &declared);
        }
        Ok(self)
    }

    /// Whether an item that an orchestration declares is registered.
    fn has(&self, used: &Used) -> bool {
        match used.kind {
            UsedKind::Activity => self.has_activity(used.name),
            UsedKind::Orchestration => self.has_orchestration(used.name),
            UsedKind::Either => self.has_activity(used.name) || self.has_orchestration(used.name),
        }
    }

    fn has_activity(&self, name: &str) -> bool {
        self.activities.contains_key(name) || covering(&self.fallback_activities, name).next().is_some()
    }

    /// Adds all registrations of another one.
    pub(crate) fn merge(&mut self, other: Registry) -> Result<(), StartError> {
        for (name, versions) in other.orchestrations {
            for code in versions.into_values() {
                self.add_orchestration(&name, &code.version, code.handler, code.uses)?;
            }
        }
        for (name, RegisteredActivity { handler, state }) in other.activities {
            self.add_activity(&name, handler, state)?;
        }
        for (pattern, versions) in other.fallback_orchestrations {
            for code in versions.into_values() {
                self.add_fallback_orchestration(&pattern.to_string(), &code.version, code.handler)?;
            }
        }
        for (pattern, handler) in other.fallback_activities {
            self.add_fallback_activity(&pattern.to_string(), handler)?;
        }
        for (name, policy) in other.version_policies {
            self.add_version_policy(&name, policy)?;
        }
        self.state.merge(other.state).map_err(state_twice)
    }

    /// The names and patterns of orchestrations and of activities.
    pub(crate) fn names(&self) -> (Vec<String>, Vec<String>) {
        let orchestrations = self.orchestrations.keys().cloned();
        let activities = self.activities.keys().cloned();
        (
            orchestrations.chain(self.fallback_orchestrations.keys().map(NamePattern::to_string)).collect(),
            activities.chain(self.fallback_activities.keys().map(NamePattern::to_string)).collect(),
        )
    }

    /// The names that metrics tell apart, at most `limit` of each kind.
    pub(super) fn observed(&self, limit: usize) -> Observed {
        let names = |names: Vec<&String>, patterns: Vec<&NamePattern>| {
            ObservedNames::new(names.into_iter().cloned(), patterns.into_iter().cloned(), limit)
        };
        Observed {
            orchestrations: names(
                self.orchestrations.keys().collect(),
                self.fallback_orchestrations.keys().collect(),
            ),
            activities: names(self.activities.keys().collect(), self.fallback_activities.keys().collect()),
        }
    }

    /// The orchestrations only.
    pub(crate) fn handlers(&self) -> Handlers {
        let mut handlers = Handlers::default();
        for (name, versions) in &self.orchestrations {
            for code in versions.values() {
                handlers = handlers.with_shared(name, code.version.as_str(), Arc::clone(&code.handler));
            }
        }
        for (pattern, versions) in &self.fallback_orchestrations {
            for code in versions.values() {
                handlers = handlers.with_fallback(pattern, code.version.as_str(), Arc::clone(&code.handler));
            }
        }
        // The version that a start gets is decided here once, for the runtime and for tests.
        for name in self.orchestrations.keys().chain(self.version_policies.keys()) {
            if let Some(version) = self.latest(name) {
                handlers = handlers.with_start_version(name, version);
            }
        }
        handlers
    }

    /// The code of an activity, with its declared state.
    pub(crate) fn activity(&self, name: &str) -> Option<Arc<dyn ActivityHandler>> {
        match self.activities.get(name) {
            Some(own) => Some(self.state.given_to(Arc::clone(&own.handler), &own.state)),
            None => covering(&self.fallback_activities, name).next().map(|(_, handler)| Arc::clone(handler)),
        }
    }

    /// The code that replaces an activity, with all state.
    pub(crate) fn with_state(&self, handler: Arc<dyn ActivityHandler>) -> Arc<dyn ActivityHandler> {
        self.state.given_in_full_to(handler)
    }

    /// The activities that can run here.
    pub(crate) fn served(&self, tags: &[String]) -> Served {
        let tags: BTreeSet<String> = tags.iter().cloned().collect();
        let prefixes = self.fallback_activities.keys().map(|pattern| pattern.prefix().to_owned());
        Served { names: self.activities.keys().cloned().collect(), tags, prefixes: prefixes.collect() }
    }

    /// The description of this node for people and other nodes.
    pub(super) fn node_info(&self, options: &RuntimeOptions) -> NodeInfo {
        let versions = |(name, versions): (String, &BTreeMap<Version, _>)| {
            versions.keys().map(|version| (name.clone(), version.to_string())).collect::<Vec<_>>()
        };
        // Patterns can be recognised by their stars.
        let named = self.orchestrations.iter().map(|(name, versions)| (name.clone(), versions));
        let fallbacks = self.fallback_orchestrations.iter();
        let fallbacks = fallbacks.map(|(pattern, versions)| (pattern.to_string(), versions));
        let fallback_activities = self.fallback_activities.keys().map(NamePattern::to_string);
        let host = host_name();
        NodeInfo {
            name: if options.node.is_empty() { default_name(&host) } else { options.node.clone() },
            host,
            process: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            since_ms: system_now_ms(),
            owns_shards: options.owns_shards,
            orchestrations: named.chain(fallbacks).flat_map(versions).collect(),
            activities: self.activities.keys().cloned().chain(fallback_activities).collect(),
            tags: options.tags.clone(),
            slots: options.activity_slots,
            free: Some(options.activity_slots),
            turn_threads: options.turn_threads,
            load: None,
        }
    }

    /// Whether there is code for an orchestration, of any version.
    pub(crate) fn has_orchestration(&self, name: &str) -> bool {
        self.versions(name).is_some()
    }

    /// The name of an orchestration that is similar to a name that has no code.
    pub(crate) fn similar_orchestration(&self, name: &str) -> Option<String> {
        similar(name, self.orchestrations.keys().map(|name| &**name)).map(str::to_owned)
    }

    /// The code for new instances of a name: its own, else that of the longest matching pattern.
    fn versions(&self, name: &str) -> Option<&BTreeMap<Version, Code>> {
        let own = self.orchestrations.get(name);
        own.or_else(|| covering(&self.fallback_orchestrations, name).next().map(|(_, versions)| versions))
    }

    /// Replaces what is known about the code of other nodes.
    pub(super) fn set_peer_code(&self, peer_code: PeerCode) {
        *self.peer_code.write().unwrap_or_else(PoisonError::into_inner) = peer_code;
    }

    /// The code for a start: by policy, else the highest version by semver that all nodes have, preferring
    /// releases to pre-releases. If there is no such version, the highest one of this node: some other node
    /// does not have the orchestration at all.
    fn latest_code(&self, name: &str) -> Option<&Code> {
        if let Some(VersionPolicy::Exact(version)) = self.version_policies.get(name) {
            return self.code(name, version);
        }
        let versions = self.versions(name)?;
        let peer_code = self.peer_code.read().unwrap_or_else(PoisonError::into_inner);
        let is_common = |code: &Code| peer_code.all_have(name, &code.version);
        highest(versions, is_common).or_else(|| highest(versions, |_| true))
    }

    fn code(&self, name: &str, version: &str) -> Option<&Code> {
        // An instance that began with a pattern's code keeps it when its name is registered at another
        // version.
        let own = self.orchestrations.get(name).and_then(|versions| code_of(versions, version));
        own.or_else(|| {
            covering(&self.fallback_orchestrations, name).find_map(|(_, versions)| code_of(versions, version))
        })
    }

    /// Whether the code that a start would use can decode its input. If the code is not registered here, the
    /// node that has it checks.
    pub(crate) fn check_input(
        &self,
        name: &str,
        version: Option<&str>,
        input: &Payload,
    ) -> Result<(), NotOfType> {
        let asked;
        let handler = match version {
            Some(version) => {
                asked = self.handler(name, version);
                asked.as_ref()
            }
            None => self.latest_code(name).map(|code| &code.handler),
        };
        handler.map_or(Ok(()), |handler| handler.check_input(input))
    }
}

impl HandlerSource for Registry {
    fn handler(&self, name: &str, version: &str) -> Option<Arc<dyn OrchestrationHandler>> {
        self.code(name, version).map(|code| Arc::clone(&code.handler))
    }

    fn latest(&self, name: &str) -> Option<String> {
        self.latest_code(name).map(|code| code.version.clone())
    }
}

/// The name of the machine, if it is known.
fn host_name() -> String {
    let named = std::fs::read_to_string("/etc/hostname").ok().map(|name| name.trim().to_owned());
    named.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default()
}

/// The name of a node whose operator gave none: no other live node of the machine has it.
fn default_name(host: &str) -> String {
    let process = std::process::id();
    if host.is_empty() { format!("process-{process}") } else { format!("{host}-{process}") }
}

/// The highest of the versions that are suitable, preferring releases to pre-releases.
fn highest(versions: &BTreeMap<Version, Code>, is_suitable: impl Fn(&Code) -> bool) -> Option<&Code> {
    let suitable = || versions.iter().rev().filter(|(_, code)| is_suitable(code));
    let release = suitable().find(|(version, _)| version.pre.is_empty());
    release.or_else(|| suitable().next()).map(|(_, code)| code)
}

fn add_version(
    versions: &mut BTreeMap<Version, Code>,
    name: &str,
    version: &str,
    handler: Arc<dyn OrchestrationHandler>,
    uses: Vec<Used>,
) -> Result<(), StartError> {
    let parsed = parse_version(name, version)?;
    let code = Code { version: parsed.to_string(), handler, uses };
    match versions.insert(parsed, code) {
        Some(_) => Err(StartError::RegisteredTwice { what: format!("orchestration {name:?} {version}") }),
        None => Ok(()),
    }
}

fn code_of<'a>(versions: &'a BTreeMap<Version, Code>, version: &str) -> Option<&'a Code> {
    // There are few versions, and they are nearly always written as they were registered.
    let code = versions.values().find(|code| code.version == version);
    code.or_else(|| versions.get(&Version::parse(version).ok()?))
}

fn parse_version(name: &str, version: &str) -> Result<Version, StartError> {
    Version::parse(version).map_err(|problem| StartError::Version {
        name: name.to_owned(),
        version: version.to_owned(),
        problem: problem.to_string(),
    })
}

fn state_twice(name: &str) -> StartError {
    StartError::RegisteredTwice { what: format!("state of the type {name}") }
}

/// The entries that match a name, the longest pattern first.
fn covering<'a, 'b, T>(
    fallbacks: &'a BTreeMap<NamePattern, T>,
    name: &'b str,
) -> impl Iterator<Item = (&'a NamePattern, &'a T)> + use<'a, 'b, T> {
    // If two patterns match a name, one is a prefix of the other, so the order is by length.
    fallbacks.iter().rev().filter(move |(pattern, _)| pattern.covers(name))
}

fn parse(pattern: &str) -> Result<NamePattern, StartError> {
    NamePattern::parse(pattern).map_err(|source| StartError::Pattern { pattern: pattern.to_owned(), source })
}

fn check(name: &str) -> Result<(), StartError> {
    check_name(name).map_err(|source| StartError::Name { name: name.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registrations::Registrations;
    use crate::typed::OrchestrationContext;

    fn peer(versions: &[(&str, &str)]) -> Vec<(String, String)> {
        versions.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned())).collect()
    }

    #[test]
    fn n14_a_start_uses_the_latest_version_that_all_nodes_have() {
        let code = |_: OrchestrationContext, _: u64| async move { Ok::<_, String>(0) };
        let registrations = ["1.0.0", "1.1.0", "2.0.0"]
            .into_iter()
            .fold(Registrations::new(), |all, version| all.orchestration("order", version, code));
        let registry = registrations.into_registry().unwrap();
        let latest = || registry.latest("order").unwrap();
        assert_eq!(latest(), "2.0.0");
        registry.set_peer_code(PeerCode::from_iter([
            peer(&[("order", "2.0.0")]),
            peer(&[("order", "1.0.0"), ("order", "1.1.0")]),
        ]));
        assert_eq!(latest(), "2.0.0", "nothing in common: what this node has");
        registry.set_peer_code(PeerCode::from_iter([peer(&[("order", "1.0.0"), ("order", "1.1.0")])]));
        assert_eq!(latest(), "1.1.0");
        registry.set_peer_code(PeerCode::from_iter([
            peer(&[("ord*", "1.0.0")]),
            peer(&[("order", "1.0.0"), ("order", "2.0.0")]),
        ]));
        assert_eq!(latest(), "1.0.0");
        registry.set_peer_code(PeerCode::default());
        assert_eq!(latest(), "2.0.0");
    }
}
