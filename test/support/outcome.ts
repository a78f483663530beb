/** Output and exit status of a process with pipes. Both pipes are read at once: a full one would block the process. */
export async function outcomeOf(
  child: Bun.Subprocess<Bun.SpawnOptions.Writable, 'pipe', 'pipe'>,
): Promise<{ out: string; err: string; code: number }> {
  const [out, err, code] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ])
  return { out, err, code }
}
