//! The table of routes. Router, roles, parameters and the OpenAPI document all come from it.

use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;

use axum::body::Body;
use axum::http::{Method, Response};
use perennial::ErrorCode;

use crate::ask::Ask;
use crate::problem::Problem;
use crate::query::Parameter;
use crate::routes;
use crate::schema::Schema;

/// What a handler returns.
pub(crate) type Answered = Result<Response<Body>, Problem>;

type Handler = fn(Ask) -> Pin<Box<dyn Future<Output = Answered> + Send>>;

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nobody,
    Reader,
    /// A reader, unless payloads are hidden from readers.
    PayloadReader,
    Operator,
}

/// How much a request may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    Small,
    /// Few of these run at a time.
    Heavy,
    /// It lasts until the caller leaves.
    Stream,
}

/// What the body of a request is.
#[derive(Clone, Copy)]
pub(crate) enum Input {
    Nothing,
    /// Any JSON value, recorded as it is. Nothing means `null`.
    Payload(&'static str),
    /// An object with these members.
    Object(fn() -> Schema),
}

/// The answer to a request that succeeded.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    pub(crate) status: u16,
    pub(crate) about: &'static str,
    pub(crate) media: &'static str,
    pub(crate) schema: Option<fn() -> Schema>,
}

pub(crate) const JSON: &str = "application/json";

/// An answer with a JSON body.
pub(crate) const fn json(status: u16, about: &'static str, schema: fn() -> Schema) -> Output {
    Output { status, about, media: JSON, schema: Some(schema) }
}

/// One method of one path.
pub(crate) struct Route {
    pub(crate) method: Method,
    /// The path below `/api/v1/`, or below the prefix if it begins with a slash.
    pub(crate) path: &'static str,
    /// The name of the operation.
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) needs: Needs,
    pub(crate) cost: Cost,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) input: Input,
    pub(crate) outputs: Vec<Output>,
    pub(crate) codes: Vec<ErrorCode>,
    /// Whether repeating the request has no further effect.
    pub(crate) idempotent: bool,
    /// Whether the request takes an `Idempotency-Key`.
    pub(crate) keyed: bool,
    pub(crate) handler: Handler,
}

impl Route {
    pub(crate) fn new(
        method: Method,
        path: &'static str,
        name: &'static str,
        about: &'static str,
        handler: Handler,
    ) -> Route {
        let is_read = method == Method::GET;
        Route {
            method,
            path,
            name,
            about,
            needs: if is_read { Needs::Reader } else { Needs::Operator },
            cost: Cost::Small,
            parameters: Vec::new(),
            input: Input::Nothing,
            outputs: Vec::new(),
            codes: Vec::new(),
            idempotent: is_read,
            keyed: false,
            handler,
        }
    }

    pub(crate) fn needs(mut self, needs: Needs) -> Route {
        self.needs = needs;
        self
    }

    pub(crate) fn cost(mut self, cost: Cost) -> Route {
        self.cost = cost;
        self
    }

    pub(crate) fn takes(mut self, parameters: &[Parameter]) -> Route {
        self.parameters.extend_from_slice(parameters);
        self
    }

    pub(crate) fn input(mut self, input: Input) -> Route {
        self.input = input;
        self
    }

    pub(crate) fn answers(mut self, outputs: &[Output]) -> Route {
        self.outputs.extend_from_slice(outputs);
        self
    }

    pub(crate) fn fails_with(mut self, codes: &[ErrorCode]) -> Route {
        self.codes.extend_from_slice(codes);
        self
    }

    pub(crate) fn idempotent(mut self) -> Route {
        self.idempotent = true;
        self
    }

    pub(crate) fn keyed(mut self) -> Route {
        self.keyed = true;
        self
    }

    /// The segments of the whole path.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &'static str> + use<> {
        let (base, path) = match self.path.strip_prefix('/') {
            Some(path) => (&[][..], path),
            None => (&["api", "v1"][..], self.path),
        };
        base.iter().copied().chain(path.split('/'))
    }

    /// The values of the path's variables, still encoded, if a path matches.
    fn variables<'a>(&self, path: &[&'a str]) -> Option<Vec<(&'static str, &'a str)>> {
        let mut variables = Vec::new();
        let mut given = path.iter().copied();
        for segment in self.segments() {
            let value = given.next()?;
            match segment.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
                // An empty segment is no name.
                Some(_) if value.is_empty() => return None,
                Some(name) => variables.push((name, value)),
                None if segment == value => {}
                None => return None,
            }
        }
        given.next().is_none().then_some(variables)
    }
}

/// All routes.
pub(crate) static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(routes::all);

/// The route of a request.
pub(crate) enum Found<'a> {
    Route(&'static Route, Vec<(&'static str, &'a str)>),
    /// The path exists with other methods.
    Methods(Vec<&'static Method>),
    Nothing,
}

/// Finds the route of a path. A fixed segment is preferred to a variable, so that no name hides a route.
pub(crate) fn find<'a>(method: &Method, path: &'a str) -> Found<'a> {
    let segments: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
    let matching: Vec<_> =
        ROUTES.iter().filter_map(|route| Some((route, route.variables(&segments)?))).collect();
    let fewest = matching.iter().map(|(_, variables)| variables.len()).min();
    let matching = matching.into_iter().filter(|(_, variables)| Some(variables.len()) == fewest);
    let mut methods = Vec::new();
    for (route, variables) in matching {
        if route.method == *method {
            return Found::Route(route, variables);
        }
        methods.push(&route.method);
    }
    if methods.is_empty() { Found::Nothing } else { Found::Methods(methods) }
}
