/** A counter as one thread knows it. */
export type Known = {
  /** End of the window that the counts are of. */
  endMs: number
  /** As last answered by the shard. */
  used: number
  /** Let through since then, and not answered by the shard yet. */
  unanswered: number
}

/**
 * The counters that a thread decides without asking the shard (`async`), within a memory budget. The next call of a forgotten
 * counter passes unchecked, so no workspace may make the counters of others be forgotten: beyond the budget the workspace
 * with the most forgets first, and of its counters those used longest ago.
 */
export class KnownCounters {
  private readonly owners = new Map<string, { counters: Map<string, Known>; bytes: number }>()
  private bytes = 0

  /** @param bytesMax All workspaces together. */
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

  /** Makes room for several calls, as finding the largest workspace takes time. */
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
