//! P8: the command explains itself, exit codes included, and completes in shells.

use crate::support::run;

/// What a command prints, without blanks at the ends of lines.
fn printed(arguments: &[&str]) -> String {
    let said = run(arguments, &[]);
    assert_eq!(said.code, 0, "{said:?}");
    said.stdout.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[test]
fn p8_help_lists_commands_and_exit_codes() {
    insta::assert_snapshot!(printed(&["--help"]), @r#"
        Durable execution for Rust: see it survive, look at instances, reach them.

        Looking works while another process runs the store; changes reach that process through the store and are durable when the command returns.

        Usage: perennial [OPTIONS] <COMMAND>

        Commands:
          demo         Run a fleet of orders whose worker is killed again and again, and count what was lost: nothing
          list         List instances
          show         Show one instance
          history      What is recorded of an instance
          tree         An instance with all that it started as children
          start        Start an instance
          raise        Raise an event at an instance
          query        Ask an instance something; its code answers, and nothing changes
          update       Have an instance change something, and wait for what its code says
          cancel       Ask instances to cancel; their code may clean up first
          terminate    End instances without running their code
          retry        Try blocked instances again
          skip         Let a blocked instance go on without the event that its code cannot read, or the message that nobody can read
          activity     Say what came of an attempt of an activity, with the token that it handed out
          pause        Pause instances, or all of an orchestration: they take no turn until they are resumed
          resume       Let paused instances go on, or all of an orchestration
          reset        Take an instance back to one of its turns: it goes on from there with the code that is registered now
          rerun        Run an instance that failed, was cancelled or terminated, or timed out, again from its end
          delete       Delete instances that have ended, with their children
          prune        Delete all instances that ended long ago, or old executions of all instances
          export       Write histories as JSON lines, one instance per line
          top          Live counts
          doctor       Look for trouble, and what to do about it: schema, owner, files, lag, messages, blocked instances
          verify       Read the whole store and name what is damaged: rows, histories, messages, tasks
          bench        How many small orchestrations this machine completes in a second
          completions  Completions for a shell
          help         Print this message or the help of the given subcommand(s)

        Options:
              --store <URL>
                  The store, such as sqlite:shop.db

                  [env: PERENNIAL_STORE]

              --json
                  One JSON object per line, for programs; errors too

          -h, --help
                  Print help (see a summary with '-h')

          -V, --version
                  Print version

        Before you deploy: whether open instances fit your new code is for your own program to say, which has the code. Give it
        an argument that calls `Runtime::open(url).register(…).preflight()`; the guide's page "Operate" shows how.

        Exit codes:
          0  it worked
          1  it failed: an orchestration failed, doctor or verify found something, the demo lost something
          2  usage: the command line, a URL, an id or a filter cannot be used
          3  not found: there is no such instance, execution or event
          4  refused: the id is taken, the instance has ended or has not, nobody said yes
          5  the store is unavailable: missing, in use, not a store, or no runtime answers on it
        "#);
}

#[test]
fn p8_help_of_list_names_every_filter() {
    insta::assert_snapshot!(printed(&["list", "--help"]), @r#"
        List instances

        Usage: perennial list [OPTIONS]

        Options:
              --status <STATUS>         Where they stand: pending, running, completed, failed, cancelled, terminated
              --store <URL>             The store, such as sqlite:shop.db [env: PERENNIAL_STORE]
              --json                    One JSON object per line, for programs; errors too
              --name <NAME>             The orchestration
              --version <VERSION>       The orchestration's version
              --prefix <PREFIX>         How the id begins
              --blocked                 Only those that are blocked
              --paused                  Only those that are paused
              --attribute <NAME=VALUE>  A value that they have; VALUE is JSON, or text
              --where <CONDITION>       What an attribute is like: NAME^=PREFIX, NAME=VALUE, or with <, <=, >, >=
              --parent <ID>             The children of this instance
              --newest                  Newest first
              --filter <TERMS>          All of that as text, such as "status=running name=order attr.customer=7"
              --limit <LIMIT>           How many at most [default: 50]
              --after <KEY>             Go on behind the instance with this key, which is the last one of the page before
          -h, --help                    Print help
        "#);
}

#[test]
fn p8_shells_can_complete_it() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = run(&["completions", shell], &[]);
        assert_eq!(said.code, 0, "{shell}");
        assert!(said.stdout.contains("perennial") && said.stdout.contains("doctor"), "{shell}");
    }
}
