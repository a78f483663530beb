/** A counter as one thread knows it. */
export type Known = {
  /** End of the window that the counts are of. */
  endMs: number
  /** As last answered by the shard. */
  used: number
  /** Let through since, and not answered yet. */
  unanswered: number
}

/**
 * What a thread knows of the counters that are used with `async`, within a budget. Of a forgotten one the next call passes
 * unseen, so a workspace must not make others' be forgotten: beyond the budget the workspace with the most gives way, those
 * it used longest ago first.
 */
export class KnownCounters {
  private readonly owners = new Map<string, { counters: Map<string, Known>; bytes: number }>()
  private bytes = 0

  /** @param bytesMax Of all workspaces together. */
  constructor(private readonly bytesMax: number) {}

  get(workspaceId: string, counter: string): Known | undefined {
    const counters = this.owners.get(workspaceId)?.counters
    const known = counters?.get(counter)
    if (known !== undefined && counters !== undefined) {
      counters.delete(counter)
      counters.set(counter, known)
    }
    return known
  }

  set(workspaceId: string, counter: string, known: Known): void {
    let owner = this.owners.get(workspaceId)
    if (owner === undefined) {
      owner = { counters: new Map(), bytes: 0 }
      this.owners.set(workspaceId, owner)
    }
    if (!owner.counters.delete(counter)) {
      owner.bytes += bytesOf(counter)
      this.bytes += bytesOf(counter)
    }
    owner.counters.set(counter, known)
    if (this.bytes > this.bytesMax) this.makeRoom()
  }

  /** For some calls to come, so that not each of them looks for the largest. */
  private makeRoom(): void {
    const target = this.bytesMax - this.bytesMax / ROOM
    while (this.bytes > target) {
      let largest = ''
      let bytesMost = -1
      for (const [workspaceId, { bytes }] of this.owners) {
        if (bytes <= bytesMost) continue
        largest = workspaceId
        bytesMost = bytes
      }
      const owner = this.owners.get(largest)
      if (owner === undefined) return
      for (const counter of owner.counters.keys()) {
        if (this.bytes <= target || 2 * owner.bytes <= bytesMost) break
        owner.counters.delete(counter)
        owner.bytes -= bytesOf(counter)
        this.bytes -= bytesOf(counter)
      }
      if (owner.counters.size === 0) this.owners.delete(largest)
    }
  }
}

const ROOM = 64
const bytesOf = (counter: string) => 2 * counter.length + 200
