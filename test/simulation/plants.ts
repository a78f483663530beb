import { OverflowSnapshots } from '../../src/limiter/table/overflow-snapshots.ts'
import { WindowTable } from '../../src/limiter/table/window-table.ts'
import { Shard } from '../../src/limiter/threads/shard.ts'
import { ShardQueue } from '../../src/limiter/threads/shard-queue.ts'
import { Invalidations } from '../../src/records/invalidations.ts'
import { CreditSpender, KeyLocked } from '../../src/verify/credits.ts'

export type Plant = { what: string; plant(): void }

/**
 * Bugs to be found by the simulation. Each changes the program's classes in this process only, so a planted bug needs a
 * process of its own.
 */
export const PLANTS: Record<string, Plant> = {
  'window-edge': {
    what: 'a call at the very end of a window still counts in it',
    plant() {
      const { take } = WindowTable.prototype
      WindowTable.prototype.take = function (h0, h1, h2, h3, limit, durationMs, cost, atMs, owner) {
        const isEdge = atMs % durationMs === 0
        return take.call(this, h0, h1, h2, h3, limit, durationMs, cost, isEdge ? atMs - 1 : atMs, owner)
      }
    },
  },
  'flush-forgets': {
    what: 'what a failed flush held is not written again',
    plant() {
      WindowTable.prototype.markChanged = () => {}
    },
  },
  'rewrite-skips': {
    what: 'what a flush wrote is superseded, though what did not change since was not written again',
    plant() {
      const { collectChanges } = WindowTable.prototype
      WindowTable.prototype.collectChanges = function (from, pagesMax, changed) {
        return collectChanges.call(this, from, pagesMax, changed)
      }
    },
  },
  'overflow-forgets': {
    what: 'a counter near its limit is written once, and not in the generations that follow',
    plant() {
      const { collect } = OverflowSnapshots.prototype
      OverflowSnapshots.prototype.collect = function (from, bucketsMax, nowMs, changed, rewrite) {
        return collect.call(this, from, bucketsMax, nowMs, changed, { ...rewrite, until: rewrite.from })
      }
    },
  },
  'restore-doubles': {
    what: 'a window read at the start counts twice',
    plant() {
      const { restore } = WindowTable.prototype
      WindowTable.prototype.restore = function (h0, h1, h2, h3, endMs, used, owner) {
        restore.call(this, h0, h1, h2, h3, endMs, 2 * used, owner)
      }
    },
  },
  'failed-goes-on': {
    what: 'a shard without a thread of its own goes on answering after it has failed, beside the one in its place',
    plant() {
      Shard.prototype.abandon = () => {}
    },
  },
  'refusal-charges': {
    what: 'a refused cost is counted, though the answer does not show it',
    plant() {
      const { take } = WindowTable.prototype
      WindowTable.prototype.take = function (h0, h1, h2, h3, limit, durationMs, cost, atMs, owner) {
        if (take.call(this, h0, h1, h2, h3, limit, durationMs, cost, atMs, owner)) return true
        const { used, resetAtMs } = this
        take.call(this, h0, h1, h2, h3, Number.MAX_SAFE_INTEGER, durationMs, cost, atMs, owner)
        this.used = used
        this.resetAtMs = resetAtMs
        return false
      }
    },
  },
  'no-undo': {
    what: 'what was charged for a call that another shard refused is not taken back',
    plant() {
      WindowTable.prototype.undo = () => {}
    },
  },
  'undo-unsent': {
    what: 'a router forgets to tell what a refused call is to give back',
    plant() {
      ShardQueue.prototype.stillServes = () => false
    },
  },
  'undo-anyone': {
    what: 'a shard that was started again is told to undo what the one before it had charged',
    plant() {
      ShardQueue.prototype.stillServes = () => true
    },
  },
  'stale-cache': {
    what: 'a write is answered before the other threads have dropped what it touched',
    plant() {
      const { broadcastAndWait } = Invalidations.prototype
      Invalidations.prototype.broadcastAndWait = async function (touched) {
        void broadcastAndWait.call(this, touched).catch(() => {})
      }
    },
  },
  'credits-for-free': {
    what: 'a verification is let through when the database does not say whether its credits were taken',
    plant() {
      const { spend } = CreditSpender.prototype
      CreditSpender.prototype.spend = function (keyId, cost) {
        return spend.call(this, keyId, cost).catch(() => ({ passed: true, remaining: 0 }))
      }
    },
  },
  'locked-charges': {
    what: 'a call refused because its key is locked takes its credits later',
    plant() {
      const { spend } = CreditSpender.prototype
      CreditSpender.prototype.spend = async function (keyId, cost) {
        try {
          return await spend.call(this, keyId, cost)
        } catch (cause) {
          if (cause instanceof KeyLocked) void spend.call(this, keyId, cost).catch(() => {})
          throw cause
        }
      }
    },
  },
}
