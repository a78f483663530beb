/** What a process with pipes wrote until its end, and its exit status. Both pipes are read at once: a full one would stop it. */
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
