//! What a recorder of metrics costs: the same work without one and with one, in turns, so that both see the same machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use perennial::Payload;
use perennial_server::prometheus;

use crate::figures::{Report, median};
use crate::fleet::{Outcome, Place, number, runtime};
use crate::workloads::{fresh, run_many};

/// How often a recorder is asked to drop what it need not keep, as the one of a server is.
const UPKEEP_PAUSE: Duration = Duration::from_secs(5);

/// A workload: its instances, how many at a time, and the input of each.
struct Work {
    name: &'static str,
    count: u64,
    in_flight: usize,
    input: Payload,
    /// What is counted of each instance.
    units: u64,
}

pub(crate) async fn measure(place: &Place, runs: usize, scale: u64) -> Outcome<Vec<Report>> {
    let steps = 2_000 / scale;
    let works = [
        Work { name: "hello", count: 20_000 / scale, in_flight: 128, input: Payload::null(), units: 1 },
        Work { name: "sequence", count: 1, in_flight: 1, input: number(steps), units: steps },
    ];
    let mut reports = Vec::new();
    for work in works {
        let (mut ratios, mut without, mut with) = (Vec::new(), Vec::new(), Vec::new());
        for run in 0..runs {
            // Whoever comes second has a warmer machine.
            let (one, other) = match run % 2 {
                0 => (rate(place, &work, false).await?, rate(place, &work, true).await?),
                _ => {
                    let recorded = rate(place, &work, true).await?;
                    (rate(place, &work, false).await?, recorded)
                }
            };
            ratios.push(100.0 * other / one);
            without.push(one);
            with.push(other);
        }
        let name = format!("metrics-{}", work.name);
        let report = Report::new(&name, place.name(), "% with metrics", ratios);
        reports.push(report.with("without_per_s", median(&without)).with("with_per_s", median(&with)));
    }
    Ok(reports)
}

/// How much is done in a second on a new store.
async fn rate(place: &Place, work: &Work, is_recorded: bool) -> Outcome<f64> {
    let Work { name, count, in_flight, input, units } = work;
    let recorder = prometheus::builder().build_recorder();
    let handle = recorder.handle();
    let site = fresh(place, &format!("metrics-{name}")).await?;
    let runtime = {
        // A runtime asks for the recorder when it starts, on the thread that starts it.
        let _recorder = is_recorded.then(|| metrics::set_default_local_recorder(&recorder));
        runtime(&site).await?
    };
    let is_over = Arc::new(AtomicBool::new(false));
    let upkeep = std::thread::spawn({
        let (handle, is_over) = (handle.clone(), Arc::clone(&is_over));
        move || {
            while !is_over.load(Ordering::Relaxed) {
                std::thread::park_timeout(UPKEEP_PAUSE);
                handle.run_upkeep();
            }
        }
    });
    let client = runtime.client();
    run_many(&client, name, "warm", (count / 10).max(1), *in_flight, &number(20)).await?;
    let begun = Instant::now();
    run_many(&client, name, name, *count, *in_flight, input).await?;
    let rate = (count * units) as f64 / begun.elapsed().as_secs_f64();
    runtime.shutdown().await?;
    site.clear().await?;
    is_over.store(true, Ordering::Relaxed);
    upkeep.thread().unpark();
    upkeep.join().map_err(|_| "the upkeep of metrics panicked")?;
    match handle.render().contains("perennial_turns_total{") == is_recorded {
        true => Ok(rate),
        false => Err("the recorder was not used as it should be".into()),
    }
}
