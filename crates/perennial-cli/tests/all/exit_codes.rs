//! P8: commands end with the exit codes that the help lists.

use super::support::{Shop, run};

#[tokio::test]
async fn p8_commands_end_with_the_exit_codes_of_the_help() {
    let shop = Shop::stocked().await;
    let help = run(&["--help"], &[]).stdout;
    let cases: &[(i32, &[&[&str]])] = &[
        (0, &[&["list"], &["show", "order-1"], &["history", "order-1"], &["top", "--once"], &["verify"]]),
        (1, &[&["doctor"]]),
        (
            2,
            &[
                &["list", "--status", "done"],
                &["list", "--after", "x"],
                &["cancel"],
                &["start", "checkout", "a::b"],
            ],
        ),
        (3, &[&["show", "nobody"], &["history", "order-1", "--execution", "9"], &["cancel", "nobody"]]),
        (
            4,
            &[
                &["raise", "order-1", "x"],
                &["start", "checkout", "order-1"],
                &["prune"],
                &["retry", "counter-1"],
            ],
        ),
        (
            5,
            &[
                &["query", "counter-1", "count", "--patience", "20ms"],
                &["list", "--store", "sqlite:nowhere.db"],
            ],
        ),
    ];
    for (code, commands) in cases {
        assert!(help.contains(&format!("\n  {code}  ")), "{code} is not in the help: {help}");
        for arguments in *commands {
            let result = shop.run(arguments).await;
            assert_eq!(result.code, *code, "{arguments:?}: {result:?}");
        }
    }
}

#[tokio::test]
async fn p8_waiting_for_an_instance_that_fails_exits_with_1() {
    let shop = Shop::open().await;
    let start = ["start", "checkout", "order-3", "1", "--wait"];
    let waits = async {
        while shop.run(&["raise", "order-3", "approved", "false"]).await.code != 0 {
            tokio::task::yield_now().await;
        }
    };
    let (result, ()) = tokio::join!(shop.run(&start), waits);
    assert_eq!(result.code, 1, "{result:?}");
}
