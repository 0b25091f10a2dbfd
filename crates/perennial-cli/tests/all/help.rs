//! P8: help texts, exit codes and shell completions.

use crate::support::run;

/// The output of a command, without trailing blanks.
fn printed(arguments: &[&str]) -> String {
    let result = run(arguments, &[]);
    assert_eq!(result.code, 0, "{result:?}");
    result.stdout.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[test]
fn p8_help_lists_commands_and_exit_codes() {
    insta::assert_snapshot!(printed(&["--help"]), @r#"
        Durable execution for Rust: inspect instances, manage them, and see them survive crashes.

        Commands that only read work while another process runs the store. Changes reach that process through the store and are durable when the command returns.

        Usage: perennial [OPTIONS] <COMMAND>

        Commands:
          demo         Run orders while their worker is killed repeatedly, then count lost and duplicated effects
          list         List instances
          show         Show one instance
          history      Show the recorded history of an instance
          tree         Show an instance and its descendants
          start        Start an instance
          raise        Raise an event at an instance
          query        Query an instance; nothing is recorded
          update       Update an instance and wait for the result
          cancel       Request the cancellation of instances; their code can clean up first
          terminate    End instances without running their code
          retry        Retry blocked instances, or activities that wait for their next attempt
          skip         Let a blocked instance continue without an event or a message that cannot be read
          activity     Complete, fail or extend an attempt of an activity with its completion token
          pause        Pause instances, or an orchestration: they take no turns until they are resumed
          resume       Resume paused instances, or a paused orchestration
          reset        Reset an instance to one of its turns; it continues from there with the code registered now
          rerun        Rerun an instance that failed, timed out, or was cancelled or terminated, from its end
          delete       Delete instances that have ended, with their children
          prune        Delete instances that ended long ago, or old executions of all instances
          export       Write histories as JSON Lines, one instance per line
          top          Show live counts
          nodes        List the processes that work on the store, and what each owns
          doctor       Check a store and suggest remedies: schema, owner, files, lag, messages, stuck and blocked instances
          move         Move all instances of a stopped store to an empty one, such as from SQLite to PostgreSQL
          serve        Serve the HTTP API of a store, beside the process that runs it or without one
          token        Make a token for `serve`, add its hash to a file, and print it once
          verify       Read the whole store and list damaged rows, histories, messages and tasks
          bench        Measure how many small orchestrations this machine completes per second
          completions  Print completions for a shell
          help         Print this message or the help of the given subcommand(s)

        Options:
              --store <URL>
                  The store, such as sqlite:shop.db or postgres://localhost/shop

                  [env: PERENNIAL_STORE]

              --json
                  Print one JSON object per line, errors included

          -h, --help
                  Print help (see a summary with '-h')

          -V, --version
                  Print version

        Before you deploy: only your own program, which has the code, can check whether open instances fit it. Add an
        argument to it that calls `Runtime::open(url).register(…).preflight()`; the guide's page "Operate" shows how.

        Exit codes:
          0  success
          1  failure: an orchestration failed, doctor or verify found a problem, two stores differ, the demo lost an order
          2  usage: the command line, a URL, an id or a filter is invalid
          3  not found: the instance, execution or event does not exist
          4  refused: the id exists, the instance has ended or has not ended, a store cannot be moved, or not confirmed
          5  the store is unavailable: missing, in use, not a store, or no runtime answers on it
        "#);
}

#[test]
fn p8_help_of_list_names_every_filter() {
    insta::assert_snapshot!(printed(&["list", "--help"]), @r#"
        List instances

        Usage: perennial list [OPTIONS]

        Options:
              --status <STATUS>         Status: pending, running, completed, failed, cancelled, terminated
              --store <URL>             The store, such as sqlite:shop.db or postgres://localhost/shop [env: PERENNIAL_STORE]
              --json                    Print one JSON object per line, errors included
              --name <NAME>             The orchestration
              --version <VERSION>       The orchestration's version
              --prefix <PREFIX>         A prefix of the id
              --blocked                 Only blocked instances
              --paused                  Only paused instances
              --attribute <NAME=VALUE>  The value of an attribute; VALUE is JSON or text
              --where <CONDITION>       A condition on an attribute: NAME^=PREFIX, NAME=VALUE, or with <, <=, >, >=
              --parent <ID>             The children of this instance
              --newest                  Newest first
              --filter <TERMS>          All conditions as text, such as "status=running name=order attr.customer=7"
              --limit <LIMIT>           Maximum number of instances [default: 50]
              --after <KEY>             Start after the instance with this key, the last of the previous page
          -h, --help                    Print help
        "#);
}

#[test]
fn p8_shells_can_complete_it() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let result = run(&["completions", shell], &[]);
        assert_eq!(result.code, 0, "{shell}");
        assert!(result.stdout.contains("perennial") && result.stdout.contains("doctor"), "{shell}");
    }
}
