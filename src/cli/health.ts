import type { Arguments, Command } from './arguments.ts'
import { CallError, type Client } from './client.ts'
import { UsageError } from './usage-error.ts'

/**
 * For supervisors and health checks of containers, which have no other HTTP client. It needs no root key and reads no file with
 * a secret, so it says nothing about them.
 */
export const healthCommand: Command = {
  name: 'health',
  about: 'check whether the server is ready; exit status 1 if not',
  options: {
    wait: { value: '<seconds>', about: 'ask until the server is ready, for at most so many seconds' },
    pid: { value: '<process id>', about: 'with --wait: give up as soon as this process has ended' },
  },
  example: 'health --wait 180',
  async run(given) {
    const seconds = given.whole('wait', 1)
    const pid = given.whole('pid', 1)
    if (pid !== undefined && seconds === undefined) throw new UsageError('--pid needs --wait')
    const client = await given.client({ isAnonymous: true })
    const reply = seconds === undefined ? await ask(client) : await wait(given, client, { seconds, pid })
    given.print('ready', reply)
  },
}

/** @throws CallError when it is not ready. */
const ask = (client: Client, timeoutMs = ANSWER_MS) =>
  client.get<{ state: string }>('readiness', {}, { timeoutMs })
/** Longer than a busy server needs. A server that hangs must not use up the whole wait. */
const ANSWER_MS = 5000
const PAUSE_MS = 100

/** @throws CallError with the last reason, when the time is over or the process has ended. */
async function wait(
  { now }: Arguments,
  client: Client,
  { seconds, pid }: { seconds: number; pid: number | undefined },
): Promise<unknown> {
  const end = now + seconds * 1000
  for (;;) {
    // Looked at before the server is asked: one that became ready in between is ready.
    const hasEnded = pid !== undefined && !isAlive(pid)
    try {
      return await ask(client, Math.max(1, Math.min(ANSWER_MS, end - Date.now())))
    } catch (cause) {
      if (!(cause instanceof CallError)) throw cause
      if (hasEnded) throw gaveUp(`process ${pid} has ended`, cause)
      if (Date.now() + PAUSE_MS >= end)
        throw gaveUp(`not ready after ${seconds} second${seconds === 1 ? '' : 's'}`, cause)
    }
    await Bun.sleep(PAUSE_MS)
  }
}

function gaveUp(what: string, { message, status, code, requestId }: CallError): CallError {
  const facts = status === null ? { code, requestId } : { status, code, requestId }
  return new CallError(`${what}: ${message}`, { ...facts, hint: 'the log of the server says why' })
}

/** Also true for a process of another user. */
function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch (cause) {
    return cause instanceof Error && 'code' in cause && cause.code === 'EPERM'
  }
}
