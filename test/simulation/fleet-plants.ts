import { Grant } from '../../src/limiter/fleet/grants.ts'
import { enginePlants } from './fleet.ts'
import type { Plant } from './plants.ts'

/** Bugs that break the rules of limits across servers, one for each rule. */
export const FLEET_PLANTS: Record<string, Plant> = {
  'tell-first': {
    what: 'a lease is spent on until the engine has answered that it is returned',
    plant() {
      const { tell } = Grant.prototype
      Grant.prototype.giveUp = function () {
        this.returned += this.unspent
      }
      Grant.prototype.tell = function () {
        const entry = tell.call(this)
        entry.given = Math.max(0, entry.given - entry.returned)
        return entry
      }
    },
  },
  'own-window': {
    what: 'what is given is booked in the window that was asked for, not in the one that was charged',
    plant() {
      enginePlants.kind = 'postgres'
      const { answered } = Grant.prototype
      Grant.prototype.answered = function (answer, options) {
        answered.call(this, { ...answer, endMs: this.endMs }, options)
      }
    },
  },
  additions: {
    what: 'Redis adds what it is told, and takes up no totals',
    plant() {
      enginePlants.kind = 'redis'
      enginePlants.additions = true
    },
  },
  'no-epoch': {
    what: 'the engine does what old messages say',
    plant() {
      enginePlants.kind = 'redis'
      enginePlants.noEpoch = true
    },
  },
  'no-learning': {
    what: 'an engine that forgot gives at once',
    plant() {
      enginePlants.kind = 'redis'
      enginePlants.noLearning = true
    },
  },
  'absolute-expiry': {
    what: 'windows expire at a time of the clock of the engine',
    plant() {
      enginePlants.kind = 'redis'
      enginePlants.absoluteExpiry = true
    },
  },
}
