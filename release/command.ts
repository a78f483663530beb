import { Refusal } from './refusal.ts'

/**
 * Runs a program and waits for it.
 * @returns what it wrote, without the line end.
 * @throws Refusal with its last words when it fails.
 */
export function run(
  command: readonly string[],
  options: { cwd: string; env?: Record<string, string> },
): string {
  const [program = ''] = command
  if (Bun.which(program) === null) throw new Refusal([`${program} is needed and is not installed`])
  const done = Bun.spawnSync([...command], {
    cwd: options.cwd,
    stdin: 'inherit', // a signing tool may ask for its password
    ...(options.env !== undefined && { env: options.env }),
  })
  if (done.exitCode !== 0) {
    const said = `${done.stdout}${done.stderr}`.trim().split('\n').slice(-5).join('\n')
    throw new Refusal([`${command.join(' ')} ends with ${done.exitCode}: ${said}`])
  }
  return done.stdout.toString().trimEnd()
}
