import{E as e,O as t,Z as n,mt as r,t as i}from"./Problem-CaZZiRbp.js";import{t as a}from"./Page-D5-Db9tn.js";var o=`# Errors by code

Every error has a stable code; the text around it may change. Search this page for the code. In a program, every error
has three methods: \`code()\` returns the \`ErrorCode\`, \`is_retryable()\` tells whether the same call may succeed later
without any change, and \`remedy()\` returns what to do, in one sentence.

Four words describe how an instance stands. **Failed**: the orchestration returned an error; that is its result.
**Cancelled** and **terminated**: somebody ended it. **Blocked**: it waits until the cause is fixed and has lost
nothing; it is retried with growing pauses, at every start of the process, and by \`client.retry\`.

## History: PER-01xx

The stored data of an instance cannot be used as it is. Only that instance is blocked.

### PER-0101 corrupt history

**Cause.** The stored turns contradict each other: an event is missing, duplicated or cannot be decoded. The file was
changed by something other than Perennial, or the disk is damaged.

**Remedy.** Restore the file from a backup, or terminate the instance. If nobody changed the file, check the disk, and
report a bug with the history.

### PER-0102 newer engine

**Cause.** A newer Perennial wrote this history, in a format that this version does not know.

**Remedy.** Run the newer version. The history is intact.

### PER-0103 payload does not decode

**Cause.** An input, a result, an event or an update is JSON, but not of the type that the code expects: a field was
added or renamed, a type changed, or somebody started the instance or raised the event by name with another value. The
message names the event of the history (1 is the input), the type, and the decoder's reason, without quoting the value.
A panic of an activity, or a result that was refused, is reported as a string; a typed error that cannot be decoded from
a string also ends here.

**Remedy.** Make the type decode what is recorded (\`#[serde(default)]\`, \`#[serde(alias = …)]\`, an untagged variant for
strings), or give the changed code a new version; then deploy. The instance continues automatically. \`preflight\` finds
such instances before a deployment.

- An external event that no code should read can be skipped with \`perennial skip ID EVENT\` or \`client.skip_event\`, by
  the number in the message. The skip is recorded, and the code gets the next event of that name.
- A result that was reported with a token while no runtime was running can be skipped with
  \`perennial skip ID --message NUMBER\`; the activity continues to wait.
- \`perennial terminate\` ends the instance at once, \`perennial cancel\` when the grace period of the cancel (30 s) is
  over. An instance whose input (event 1) is of the wrong type can be terminated and started again.

### PER-0104 payload cannot be decoded

**Cause.** A payload was encoded by a codec, and the codec is not configured here, lacks the key, or cannot find the
blob. The message names the codec and the key or blob. Only an instance that needs the payload is blocked; a client
without codecs cannot return the result.

**Remedy.** Configure the codec or the key, or restore the blob. A blocked instance is retried automatically with growing
pauses and when a runtime starts, and at once with \`perennial retry ID\` or \`client.retry\`. Give clients the codecs of
the runtime with \`Client::open_with_codecs\`. If the key is lost, terminate the instance, which needs no payload.

### PER-0105 codec failed

**Cause.** A codec returned an error: a key or blob is missing, the bytes were changed, or a service did not answer. The
engine reports this as PER-0104 when it reads and as PER-0305 when it writes.

**Remedy.** Check the keys, files and services that the codec needs.

## Execution: PER-02xx

The code of an orchestration did something that cannot be recorded or does not match the history. The turn is not
recorded, the instance is blocked (unless \`FailurePolicy\` ends it), and it is retried.

### PER-0201 panic

**Cause.** The orchestration's code panicked. The message contains the source line and the panic's message.
\`there is no reactor running\` means that the code used tokio, which belongs in activities.

**Remedy.** Fix the code and deploy; the instance continues from its last turn. Return an error instead of panicking where
something can fail.

### PER-0202 non-durable await

**Cause.** The code awaits something outside of its context: a channel, a tokio sleep, a future that another thread
wakes. After a crash nothing would wake it. The message names the source line of the last context call before it.

**Remedy.** Use the context's timers, events, activities and combinators; do the rest in an activity. Channels and locks
between the units of one execution are allowed: see [What may be awaited](awaiting.md).

### PER-0203 nondeterminism

**Cause.** Replayed against its history, the code made another decision than the recorded one. Either the code was
changed without a version or a patch, or its decision depends on something that is not in the history: a clock, random
numbers, the order of a \`HashMap\`, a static, the winner of a \`tokio::select!\` without \`biased;\`. The report shows both
sides and the source line, and names the likeliest cause.

**Remedy.** If the code was changed on purpose: roll back, guard the change with \`ctx.patched\`, or give it a new version.
If not: take the value that the decision depends on from the context; [What may be awaited](awaiting.md) lists the
replacements. See [Versions and upgrades](versioning.md).

### PER-0204 limit

**Cause.** A turn, a payload or the history would exceed its limit. The message says which one, its size, the source
line and what to do.

**Remedy.** Pass references instead of large values; fan out in portions; call \`continue_as_new\` when
\`should_continue_as_new()\` returns true. The limits are in \`ExecutionOptions\`.

### PER-0205 deadline

**Cause.** A turn, query or validator took longer than \`turn_deadline\` (10 s): a long computation, an endless loop, or
code that blocks its thread. A thread that does not return is abandoned, and the turn is retried in the next process:
one such instance at a time, and no more after two of them have lost their threads again. An instance whose turns did
not end in three processes is not retried until somebody asks.

**Remedy.** Move computations and blocking code into activities. Then retry the instance if it is no longer retried
automatically.

### PER-0206 misuse

**Cause.** The context was used where it cannot be: from another thread or task, outside of a turn, within a query, a
validator or a state's closure; or an option was set on a future after it was polled. The message says which.

**Remedy.** Follow the message. Set options directly at the call; read values out of a state before you decide on them.

### PER-0207 query

**Cause.** No handler is registered for the query, or the handler refused or panicked. Only the caller gets the error;
the instance continues.

**Remedy.** Register the handler with \`on_query\` before the first await. Check the spelling.

### PER-0208 update

**Cause.** The update was not accepted: there is no handler, the validator refused it or panicked, its key was used
before, or the instance has not started or has ended. Nothing was recorded.

**Remedy.** Register the handler with \`on_update\` before the first await; use a key for one update only. If you sent the
same update again and the execution that accepted the first one has been deleted, you get PER-0634 instead.

## Engine: PER-03xx

### PER-0301 missing code

**Cause.** The orchestration is not registered in this process at the version that the instance is pinned to. For ten
minutes the instance is shown as waiting for code, in case an upgrade is under way; then it is blocked.

**Remedy.** Register it, including old versions, and restart the process. The instance then continues.

### PER-0302 takes the process down

**Cause.** Each time this instance was hydrated, the process ended: a stack overflow, memory, \`abort\`.

**Remedy.** Fix its code, deploy, then call \`client.retry(id)\`. It is not retried automatically.

### PER-0303 the store refused the turn

**Cause.** The store refuses this turn permanently, for the reason in the message.

**Remedy.** Fix the reason; then retry. If the reason is nothing that you can fix, report a bug.

### PER-0304 clock far off

This is a warning in the log; the runtime continues.

**Cause.** This machine's clock and the store's clock are more than five seconds apart, or the store's clock was set
back, possibly between two runs. Timers follow the store's clock and, while that is behind, this machine's monotonic
clock. Displayed times may be wrong.

**Remedy.** Set the clock (NTP). \`perennial doctor\` shows how far it is behind.

### PER-0305 payload cannot be encoded

**Cause.** A codec could not encode a payload: a key service did not answer, or a blob could not be written. Nothing of
the turn, the message or the start was written.

**Remedy.** Check the keys, files and services that the codec needs. A blocked instance is retried automatically; repeat a
call of a client yourself.

### PER-0306 child id taken

**Cause.** A sub-orchestration should start under an id that another instance has. The parent gets this as
\`ChildError::NotStarted\`.

**Remedy.** Choose ids that contain the parent's id, or let Perennial derive them (\`schedule_sub_orchestration\`).

### PER-0307 child id refused

**Cause.** The id of a sub-orchestration is invalid, or the derived id would exceed 1,000 bytes because children are
nested too deeply.

**Remedy.** See PER-0601; give deeply nested children short ids of your own.

### PER-0308 unreadable message

**Cause.** A message in the inbox cannot be decoded, usually because a newer Perennial sent it. The instance is blocked.
A message whose row is damaged is PER-0508.

**Remedy.** Run the newer Perennial. If no version can decode it, skip it by the number in the error:
\`perennial skip ID --message NUMBER\`, or \`client.skip_message\`. The message is deleted, the history records that, and
the content is lost: an instance that waits for the outcome of a child continues to wait, and can be reset.

### PER-0309 paused

**Cause.** Somebody paused the instance or its orchestration. It takes no turn; messages, timers and results wait. The
reason says who paused it and why.

**Remedy.** Use \`client.resume(id, why)\` or \`perennial resume ID\`; for a whole orchestration
\`client.resume_orchestration(name, why)\` or \`perennial resume --orchestration NAME\`.

## Activities and sub-orchestrations: PER-04xx

Errors that an orchestration gets when it awaits an activity, a sub-orchestration or a time limit.

### PER-0401 too large

**Cause.** The result or error of an activity, or the details of a heartbeat, exceed the payload limit (4 MiB). A result
becomes this error; details are not kept.

**Remedy.** Store it elsewhere and return a reference.

### PER-0402 timeout

**Cause.** One of the activity's timeouts expired. The message says which: queue, attempt, all attempts, or heartbeat.

**Remedy.** Raise the timeout, or find out why the activity is slow. For the heartbeat timeout, call \`ctx.heartbeat\` more
often.

### PER-0403 cancelled

**Cause.** Nobody waits for the activity any more.

**Remedy.** None is needed: your code dropped the future or was cancelled.

### PER-0404 poisoned

**Cause.** The process died each time this activity ran, more than five times in a row, at last while no other suspect
activity ran. It does not run again. [Activities that crash the process](operate.md#activities-that-crash-the-process)
describes how interruptions are counted and cleared.

**Remedy.** Find out what ends the process (memory, stack, native code). \`ShardOptions::max_interruptions\` sets the limit.

### PER-0405 unwritable

**Cause.** The value that a function returned cannot be serialised as JSON, for example a map whose keys are not
strings, or a \`NaN\` in a type that refuses it.

**Remedy.** Return a type that serde_json can serialise.

### PER-0406 bad input

**Cause.** The input of an activity is not of the type that it takes: it was called by name with another value, or its
type has changed since it was scheduled.

**Remedy.** Check the caller; call by function instead of by name where you can.

### PER-0407 no state

**Cause.** An activity called \`ctx.state::<T>()\` for a type that its attribute does not declare.

**Remedy.** Declare it: \`#[activity(state(T))]\`. A closure that is registered as an activity captures what it needs instead.

### PER-0408 unwritable details

**Cause.** The details given to \`heartbeat\` cannot be serialised as JSON, for example a map whose keys are not strings.

**Remedy.** Report something that serde_json can serialise: a number, a string, a struct.

### PER-0409 not served here

**Cause.** An orchestration scheduled an activity that its node has not registered, or whose tag it does not serve. This
is not a failure: the activity waits in the store for a node that can run it. \`perennial show\` and \`perennial doctor\`
report it.

**Remedy.** If no other program should run it: register it (\`.register(the_function)\`), check its name, or serve the tag
(\`RuntimeOptions::tags\`); it then runs automatically. A queue timeout on the call limits the wait.

### PER-0410 no token

**Cause.** The code of an activity requested its completion token, or returned \`Later::Pending\`, but the activity was
not scheduled to complete later. It was scheduled by its name, or before its code returned a \`Later\`.

**Remedy.** Schedule it by its function, or by an \`Activity<I, Later<O>, E>\`; with a bare name, add \`.completes_later()\`.
An activity that was scheduled before such a change keeps its options.

### PER-0411 activity failed

**Cause.** The activity returned an error of its own, and no attempt is left. The message is the activity's error,
without this code.

**Remedy.** Handle \`ActivityError::Application\`; use a \`RetryPolicy\` for transient errors.

### PER-0412 activity broken

**Cause.** The activity panicked, or its error cannot be decoded as the type that the caller expects. The message
contains the text.

**Remedy.** Fix the panic. If the type of the activity's error changed, make it decode what is recorded.

### PER-0413 child failed

**Cause.** A sub-orchestration returned an error of its own. The message is that error, without this code.

**Remedy.** Handle \`ChildError::Application\`.

### PER-0414 child cancelled

**Cause.** A sub-orchestration was cancelled; the message contains the reason.

**Remedy.** None is needed if this was intended. \`ChildError::Cancelled\` contains the value that the child returned with
\`end_cancelled\`.

### PER-0415 child terminated

**Cause.** A sub-orchestration was terminated, or its timeout expired; the message contains the reason.

**Remedy.** Raise the child's \`timeout\`, or handle \`ChildError::Terminated\`.

### PER-0416 child not started

**Cause.** A sub-orchestration could not be started, for a reason without a code of its own. An id that exists is
PER-0306, an invalid id PER-0307.

**Remedy.** Fix the reason in the message.

### PER-0417 time limit elapsed

**Cause.** \`ctx.timeout(limit, future)\` reached its limit before the future was ready. From a client: the instance did not end
within the limit of \`result_within\`; it goes on. The error says so if the instance is blocked or paused.

**Remedy.** Handle \`Elapsed\`, or raise the limit. \`Client::explain\` and \`perennial show\` show what an instance waits for.

## Store: PER-05xx

### PER-0501 store unavailable

**Cause.** The store cannot be reached or is busy. The engine retries automatically.

**Remedy.** If it persists, check which process holds the file and whether the disk is overloaded.

### PER-0502 outcome unknown

**Cause.** It is not known whether something was written. The engine finds out before it continues.

**Remedy.** None is needed if it is transient. If one of your calls returned it, ask again by id or key.

### PER-0503 store failed

**Cause.** The disk is full, or a write or sync failed, and the state on disk is no longer known. Or the database, its log or
its lock file was deleted, moved or replaced while in use, or the database got a second hard link. So the runtime stops. The
message says which.

**Remedy.** Free space or replace the disk, or put the files back, then restart the process. Everything acknowledged is on
disk, or in the file that was moved.

### PER-0504 session gone

This is a warning in the log; the runtime continues under another session.

**Cause.** The process was paused for longer than its lease, and another owner ended its session. Its state in memory is
dropped; callers settle through the store by their keys.

**Remedy.** None is needed. If it happens often, find out what pauses the process, or raise \`RuntimeOptions::lease\`.

### PER-0505 store closed

**Cause.** The store was used after the runtime was shut down or dropped.

**Remedy.** Keep the \`Runtime\` for as long as its clients are used.

### PER-0506 cannot open the store

**Cause.** The path, the permissions or the file system do not allow it, the file is not a Perennial store, a newer
version wrote it, it has several names, or the log beside it is missing or belongs to another file. The message says which.

**Remedy.** Follow the message. A newer file needs the newer version; a restored backup needs the files beside it deleted
(see [Backups](operate.md#backups)).

### PER-0507 store in use

**Cause.** Another runtime owns this file, and has not released it within three seconds.

**Remedy.** Stop the other runtime first, or use \`Client::open\` instead. After a crash the lock is released automatically.

### PER-0508 corrupt row

**Cause.** A row of the instance, of one of its messages or of one of its activities contradicts itself, its checksum or
the history. An instance with a damaged message is blocked when something else wakes it; until then only
\`perennial doctor\` and \`perennial verify\` report it.

**Remedy.** Keep a copy of the file. Restore it from a backup, or delete the instance with \`perennial delete --force\`.
Terminating ends the instance, but leaves the damaged row.

### PER-0509 batch refused

**Cause.** The store refused a whole batch permanently. The engine halves the batch until the refused commit is alone,
and blocks its instance.

**Remedy.** None is needed for the batch; look at the blocked instance.

### PER-0510 blob store failed

**Cause.** The blob directory cannot be opened, or a sweep could not read or delete in it.

**Remedy.** Check the directory and its permissions. A sweep that failed has deleted no blob that is in use, and can be
repeated.

## Client: PER-06xx

### PER-0601 invalid name

**Cause.** An id or name is empty, has more than 200 bytes, contains control characters, or contains \`::\`, which is
reserved for derived ids.

**Remedy.** Choose another.

### PER-0602 unknown store

**Cause.** The URL names no store that this build supports, or has options (\`?mode=ro\`), which are not supported.

**Remedy.** Use \`sqlite:PATH\`, \`sqlite::memory:\` or \`memory:\` without options, or \`postgres://…\`; enable the feature
\`sqlite\` or \`postgres\`.

### PER-0603 registered twice

**Cause.** Two activities have the same name, or two orchestrations the same name and version.

**Remedy.** Rename one (\`name = "…"\`), or give it another version.

### PER-0604 no tokio runtime

**Cause.** \`start()\` was called outside of tokio, which runs the activities.

**Remedy.** Use \`#[tokio::main]\`, or enter a tokio runtime first.

### PER-0605 not found

**Cause.** No instance has this id. It was never started in this store, or was deleted.

**Remedy.** Check the id and the store's URL.

### PER-0606 already exists

**Cause.** The id exists; the message contains that instance's status.

**Remedy.** Usually the same request was made before: use the existing instance. Or set \`OnExisting\` in \`StartOptions\`.

### PER-0607 ended

**Cause.** The instance had ended before the request reached it, and the request had no effect. From \`wait_for\`: it
ended without publishing a status that meets the condition.

**Remedy.** None is needed, or start another instance.

### PER-0608 not registered

**Cause.** There is no orchestration of this name in this process. At the start of a runtime: an orchestration declares,
with \`#[orchestration(uses(…))]\`, an activity or an orchestration that is not registered. The message names all of them.

**Remedy.** Register it; check the spelling.

### PER-0609 too large

**Cause.** The payload exceeds the limit (4 MiB).

**Remedy.** Keep large data elsewhere and pass a reference.

### PER-0610 full

**Cause.** The instance has more than 10,000 unread events.

**Remedy.** Try again later; make its code read its events.

### PER-0611 not blocked

**Cause.** A retry or a skip was requested, but the instance is not blocked, or it is paused.

**Remedy.** None is needed; if it is paused, resume it.

### PER-0612 outcome unknown

**Cause.** The runtime or its store became unavailable while the request was in flight. It may or may not have been
carried out.

**Remedy.** Repeat the request: starts are safe by their id, events and updates by a key (\`.once(key)\`).

### PER-0613 stopped

**Cause.** The runtime accepts no more requests: it is shutting down, or it stopped for the reason in the message.

**Remedy.** Start it again.

### PER-0614 not here

**Cause.** This client cannot do that, because it is in another process than the runtime.

**Remedy.** Follow the message.

### PER-0615 failed

**Cause.** The orchestration returned an error. \`OrchestrationError::Failed\` contains it; with a typed \`Run\` it is
\`RunError::Failed\`.

**Remedy.** This is the instance's result. Look at the error.

### PER-0616 cancelled

**Cause.** The instance was cancelled before it returned a result.

**Remedy.** The instance has ended; the reason is in the message.

### PER-0617 terminated

**Cause.** The instance was terminated, or its timeout expired.

**Remedy.** The instance has ended; the reason is in the message.

### PER-0618 orchestration paused

**Cause.** A resume was requested for one instance, but its whole orchestration is paused.

**Remedy.** Resume the orchestration: \`client.resume_orchestration(name, why)\` or \`perennial resume --orchestration NAME\`.

### PER-0619 bad version

**Cause.** The version of a registration or a start is not semver.

**Remedy.** Write three numbers: \`1.0.0\`.

### PER-0620 not ended

**Cause.** The instance, or one of its children, is running and cannot be deleted.

**Remedy.** Wait, terminate it first, or delete with force.

### PER-0621 refused

**Cause.** The instance's code refused a query or update. Nothing was recorded. \`error\` contains the code's error; a
typed update gets it as its own type, in \`UpdateError::Refused\`.

**Remedy.** Look at the error.

### PER-0622 update failed

**Cause.** The update was accepted, and its handler returned an error, which is in \`UpdateError::Failed\`.

**Remedy.** Look at the error.

### PER-0623 blocked

**Cause.** The instance is blocked and cannot answer a query or an update, or \`result_unless_blocked\` waited for it.

**Remedy.** Fix the reason, which has a code of its own; then ask again.

### PER-0624 not answered

**Cause.** No runtime took the query or update in time, and nothing was done. From another process, queries and updates
go through the store. If a live runtime may still be carrying out an update, you get PER-0612 instead.

**Remedy.** Check that a runtime is running on this store.

### PER-0625 missing state

**Cause.** An activity that is registered declares state, \`#[activity(state(Pool))]\`, and the builder was not given a value
of that type. The message names each such activity with the type.

**Remedy.** Give it to the builder or to the registrations with \`.state(pool)\`. The type has to be the same: an \`Arc<Pool>\` is
not a \`Pool\`.

### PER-0626 unwritable

**Cause.** An input or event cannot be serialised as JSON.

**Remedy.** Use a type that serde_json can serialise.

### PER-0627 no store

**Cause.** \`Client::open\` or a preflight was given a SQLite file that does not exist. Neither creates one, because a
mistyped path would look like an empty store.

**Remedy.** Check the path (it is relative to the working directory of the process), or start a runtime on it first.

### PER-0628 unreadable

**Cause.** The value that an instance returned, answered to a query or update, or published as its status is not of the
type that the caller requested: the call used a name or a description with other types than the code has, or the code
has changed since.

**Remedy.** Request the type that the code returns, or a \`Payload\`, which accepts every value.

### PER-0629 unanswered

**Cause.** The instance accepted the update and began to handle it, but its execution ended or continued as new before
the handler returned. What the handler did until then is recorded and remains.

**Remedy.** Look at the history to see what was done. In the code, await \`handlers_idle()\` before returning or continuing
as new, so that updates in progress are answered first.

### PER-0630 bad input

**Cause.** A start by a name or a description had an input that the code of that orchestration cannot decode. The
message contains the expected type and the reason. Nothing was started. Only a process that has the code registered can
check this: an instance that is started from another process (\`Client::open\`, \`perennial start\`) is blocked with
PER-0103 instead.

**Remedy.** Pass the type that the code takes, or start the function itself, so that the compiler checks the input.

### PER-0631 bad event

**Cause.** An event was raised in the runtime's process, and the code that waits for it cannot decode its payload. The
message contains the expected type and the reason. Nothing was recorded, and the instance continues to wait. An event
that is raised from another process, or that nothing waits for yet, is recorded, and blocks the instance with PER-0103
when it is read.

**Remedy.** Send the type that the code takes; raise an \`ExternalEvent<T>\` instead of a name, so that the compiler checks it.

### PER-0632 not blocked by that

**Cause.** A skip named an event or message that does not block the instance. Only the one that the block names can be
skipped.

**Remedy.** Skip the event or message that the error names. If it names none, something else blocks the instance: see
\`client.status(id)\` or \`perennial doctor\`.

### PER-0633 no such execution

**Cause.** The requested execution does not exist, or was deleted (\`RuntimeOptions::keep_executions\`).

**Remedy.** Request one of the executions that are kept; \`client.status(id)\` contains the number of the current one.

### PER-0634 outcome deleted

**Cause.** An update was sent again with its key, and the execution that took the first one has been deleted with its
outcome. The update was not carried out again.

**Remedy.** Keep more executions (\`RuntimeOptions::keep_executions\`) if callers retry that late, or query the effect.

### PER-0635 bad token

**Cause.** The text given to complete, fail or heartbeat an activity is not a token, was truncated or changed, or was
never handed out.

**Remedy.** Use the whole text of \`ctx.completion_token()\` unchanged; it needs no escaping in a link.

### PER-0636 attempt over

**Cause.** The attempt that handed out the token has failed or timed out, and another attempt has replaced it. Nothing
was done.

**Remedy.** Use the token of the current attempt. If people or services need longer, give the activity a longer \`timeout\`,
or have them send heartbeats.

### PER-0637 activity over

**Cause.** The activity had already ended, in another way. Nothing was done. Reporting the same result twice is not an
error.

**Remedy.** \`perennial show\` and \`perennial history\` show how it ended. Give a token to only one party that completes it.

### PER-0638 activity cancelled

**Cause.** Nobody waits for the activity any more: its orchestration cancelled it, continued without it, or has ended.

**Remedy.** Stop the work for this activity. If something must be undone, undo it where the orchestration cancels the
activity.

### PER-0639 not reset

**Cause.** An instance cannot be reset or run again: the turn does not exist, the given execution is no longer the
current one, the instance has not ended (\`rerun\`) or completed, or its history cannot be read. Nothing was changed.

**Remedy.** The message contains the reason. \`perennial history ID\` shows the turns; read the status again and repeat the
request.

### PER-0640 bad filter

**Cause.** A text is not a valid filter or condition: a field or status is unknown, a value cannot be parsed, or an
operator is missing. The message quotes the term.

**Remedy.** Write terms as \`FIELD=VALUE\`, separated by spaces; attributes as \`attr.NAME=VALUE\`, or with \`^=\`, \`<\`, \`<=\`, \`>\`, \`>=\`.
Quote values that contain spaces.

### PER-0641 bad time

**Cause.** A text is not a valid time: it is not RFC 3339, not a date, or a date that does not exist.

**Remedy.** Write \`2026-11-16T12:00:00Z\`, with an offset if needed, or a date alone, which means midnight in UTC.

### PER-0642 move refused

**Cause.** A store cannot be moved now: a process uses one of the two stores, the target is not empty, the store was moved
before, or another move of it has begun. Nothing was changed.

**Remedy.** The message contains the reason. Stop every process that uses the two stores, and move to a new file or
schema. \`perennial move --reopen URL\` removes the mark from a store that was moved, to go on with it.

### PER-0643 move does not match

**Cause.** The two stores of a move differ: the target has a row with another content, or the counts or hashes of a table
differ at the end. Usually something wrote to one of them during the move. The source was not changed.

**Remedy.** Stop every process that writes to one of the stores and repeat the move. If the target itself was changed,
delete it, run \`perennial move --reopen\` on the source, and move to a new file or schema.

### PER-0644 not waiting

**Cause.** An attempt of an activity was to be made now, but the activity does not wait for one: it runs, waits for a free
slot, waits for the holder of its token, or has ended.

**Remedy.** Look at what the instance waits for. Only the pause before another attempt can be cut short.

## HTTP API: PER-08xx

### PER-0801 not authenticated

**Cause.** The HTTP API does not know who sent the request: it has no token or session, or one that is unknown or has
expired. A router that is mounted in an application answers every request like this until the application has chosen who
may use it.

**Remedy.** Send \`Authorization: Bearer TOKEN\` with a token that \`perennial token\` made, or log in again. In a mounted
router, set \`Options::access\`.

### PER-0802 for operators

**Cause.** The request would change something, and its sender may only read; or payloads are hidden from readers, and the
request asks for them.

**Remedy.** Use the token of an operator. With \`--read-only\` nobody is one.

### PER-0803 host not allowed

**Cause.** The \`Host\` of the request is neither a loopback name nor one that the server was told to serve. The check keeps
web pages from reaching a server on your machine by pointing their own name at it.

**Remedy.** Use \`localhost\`, \`127.0.0.1\` or \`[::1]\`, or start the server with \`--allow-host NAME\`.

### PER-0804 origin not allowed

**Cause.** A browser sent the request from a page of another site.

**Remedy.** Use the pages of this server. For a page of your own, start the server with \`--allow-origin ORIGIN\`, or send a
bearer token.

### PER-0805 bad request

**Cause.** A parameter or a member of the body is unknown, repeated, missing or malformed, or the body is not JSON. Unknown
names are refused, because a misspelled filter would otherwise show everything.

**Remedy.** The message names the parameter or member. \`openapi.json\` lists those of each route.

### PER-0806 media type

**Cause.** A request that may change something did not say that its body is JSON. Web pages of other sites cannot send that
header unnoticed.

**Remedy.** Send \`Content-Type: application/json\`, even if the body is empty.

### PER-0807 no such route

**Cause.** No route of the API has this path.

**Remedy.** Check the path. Ids and names are one path segment each: percent-encode \`/\`, or write \`~\` and the bytes in
base64url.

### PER-0808 method not allowed

**Cause.** The path exists, but not with this method.

**Remedy.** The header \`Allow\` has the methods of the path.

### PER-0809 bad cursor

**Cause.** A cursor was changed, cut, or comes from another list.

**Remedy.** Pass the text of \`next\` unchanged, together with the same parameters. Without a cursor a list begins at its
start.

### PER-0810 busy

**Cause.** Too many expensive requests (scans, exports, streams) run at the same time. Nothing was done.

**Remedy.** Wait as long as \`Retry-After\` says, then repeat the request.

### PER-0811 stopping

**Cause.** The server is shutting down. Nothing was done.

**Remedy.** Repeat the request at another server, or when this one is back.

### PER-0812 another instance

**Cause.** The request was bound to an instance by its key, and the id belongs to another instance by now: the first one was
deleted and the id used again. Nothing was done.

**Remedy.** Look at the instance that has the id now, and decide again.

### PER-0813 too slow

**Cause.** The server could not answer in time, or the body of the request did not arrive in time.

**Remedy.** Repeat the request; ask for smaller pages. If it lasts, check the store with \`perennial doctor\`.

### PER-0814 no such thing

**Cause.** The route exists, but what its path names does not: an event of a history, an operation, a saved view.

**Remedy.** List what exists, and check the spelling.
`,s=/`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\(([^)]+)\)/g;function c(e){let t=[],n=0;for(let r of e.matchAll(s)){r.index>n&&t.push({kind:`text`,text:e.slice(n,r.index)});let[i,a,o,s,c]=r;a===void 0?o===void 0?s!==void 0&&c!==void 0&&t.push({kind:`link`,text:s,target:c}):t.push({kind:`bold`,text:o}):t.push({kind:`code`,text:a}),n=r.index+i.length}return n<e.length&&t.push({kind:`text`,text:e.slice(n)}),t}function l(e){let t=[],n=e.split(`
`);for(let e=0;e<n.length;){let r=n[e]??``,i=/^(#+) (.*)$/.exec(r);if(r.trim()===``)e+=1;else if(i!==null)t.push({kind:`heading`,level:i[1]?.length??1,text:i[2]??``}),e+=1;else if(r.startsWith("```")){let r=n.indexOf("```",e+1);t.push({kind:`code`,text:n.slice(e+1,r<0?n.length:r).join(`
`)}),e=r<0?n.length:r+1}else{let r=e;for(;(n[r]??``).trim()!==``&&!(n[r]??``).startsWith("```");)r+=1;t.push(u(n.slice(e,r))),e=r}}return t}function u(e){return(e[0]??``).startsWith(`- `)?{kind:`list`,items:e.join(`
`).slice(2).split(`
- `).map(e=>c(e.replace(/\n\s*/g,` `)))}:{kind:`paragraph`,spans:c(e.join(` `))}}var d=/^### (PER-\d{4}) (.*)$/gm;function f(){return[...o.matchAll(d)].map(e=>[e[1]??``,e[2]??``])}function p(e){let t=o.indexOf(`\n### ${e} `);if(t<0)return null;let n=o.slice(t+1).search(/\n##+ /);return n<0?o.slice(t+1):o.slice(t+1,t+1+n)}function m(){let e=t.value.path[1]??null;return e===null?n(h,{}):n(g,{code:e})}function h(){return n(a,{title:`Errors by code`,children:n(`ul`,{class:`guide-codes`,children:f().map(([t,r])=>n(`li`,{children:n(`a`,{class:`link`,href:e([`guide`,t]),children:[n(`code`,{children:t}),` `,r]})},t))})})}function g({code:t}){let r=p(t),[o,...s]=r===null?[]:l(r);return o?.kind===`heading`?n(a,{title:o.text,children:n(`div`,{class:`guide stack`,children:[s.map((e,t)=>n(_,{block:e},t)),n(`p`,{children:n(`a`,{class:`link`,href:e([`guide`]),children:`All codes`})})]})}):n(a,{title:`Errors by code`,children:n(i,{title:`The guide has no such code`,children:n(`p`,{children:n(`a`,{class:`link`,href:e([`guide`]),children:`All codes`})})})})}function _({block:e}){switch(e.kind){case`heading`:return n(`h2`,{children:e.text});case`code`:return n(`pre`,{children:e.text});case`list`:return n(`ul`,{children:e.items.map((e,t)=>n(`li`,{children:n(v,{of:e})},t))});case`paragraph`:return n(`p`,{children:n(v,{of:e.spans})})}}function v({of:t}){return n(r,{children:t.map((t,r)=>{if(t.kind===`code`)return n(`code`,{children:t.text},r);if(t.kind===`bold`)return n(`b`,{children:t.text},r);let i=t.kind===`link`?/#(per-\d{4})/i.exec(t.target??``)?.[1]?.toUpperCase():void 0;return i===void 0?n(`span`,{children:t.text},r):n(`a`,{class:`link`,href:e([`guide`,i]),children:t.text},r)})})}export{m as default};