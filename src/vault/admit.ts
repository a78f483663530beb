import type { AnySql, Transaction } from '../db/connect.ts'
import { StartError } from '../errors.ts'
import {
  findCheck,
  findDataKeySamples,
  hasCheckTable,
  loseDataKeys,
  putCheck,
  type SealedCheck,
  type SealedDataKey,
} from './store.ts'
import { importMaster, opensCheck, sealCheck, unsealDataKey, type VaultKey } from './vault.ts'
import type { GivenVaultKeys } from './vault-keys.ts'

/** What a start found. */
export type VaultAdmission = {
  /** The vault keys to use: given, or generated just now. Empty = recoverable keys are refused. */
  vaultKeys: readonly Uint8Array[]
  /** Vault keys that sealed something here and are not among them. */
  missing: string[]
  /** Vault keys that this start declared lost, and how many data keys they sealed; null = none. */
  lost: { vaultKeyIds: string[]; dataKeys: number } | null
}

/**
 * Checks that a start has the vault keys of the database, by a text that the first start sealed.
 *
 * 1. Nothing sealed yet: the text is sealed. Where data keys are older than the text, one of them must open first.
 * 2. The text opens: the start goes on. Data keys of other vault keys are only reported, as while the vault key is changed
 *    server by server some start without the new one.
 * 3. The text does not open, and all data keys do: an older server sealed them anew. The text follows.
 * 4. Otherwise the start ends. With `isLost` it goes on: data keys that do not open are put aside, so that their workspaces
 *    get new ones, and the text is sealed anew.
 *
 * The text is sealed by the last vault key that is in use, which servers have before and after they get another.
 * @param tx Holds the lock of starts.
 * @throws StartError naming the vault key that is wanted, by its id.
 */
export async function admitVault(
  tx: Transaction,
  given: GivenVaultKeys,
  { isLost, now }: { isLost: boolean; now: number },
): Promise<VaultAdmission> {
  const found = await findSealed(tx)
  if (given.keys === null && found.sealedBy.length > 0 && !isLost)
    throw new StartError(
      `${given.from} is missing, which holds vault key ${found.sealedBy.join(' and ')} of this database; bring it back from your backup${OR_LOST}`,
    )
  const vaultKeys = given.keys ?? given.generate()
  const masters = await Promise.all(vaultKeys.map(importMaster))
  const { isRight, missing, wanted, fitting } = await compareVaultKeys(masters, found)
  const own = masters.map(({ id }) => id)
  const last = masters.at(-1)
  if (last === undefined) return { vaultKeys, missing, lost: null }

  if (!isRight && !isLost) {
    throw new StartError(
      `this database is sealed by vault key ${wanted.join(' and ')}, and ${given.from} holds ${own.join(', ')}, which cannot open it; add the key with that id${OR_LOST}`,
    )
  }
  const dataKeys = isLost ? await loseDataKeys(tx, own, now) : 0
  if (found.check === null || !(await opensCheck(masters, found.check)))
    await putCheck(tx, await sealCheck(fitting ?? last), now)
  const isGivenUp = isLost && missing.length > 0
  return {
    vaultKeys,
    missing: isGivenUp ? [] : missing,
    lost: isGivenUp ? { vaultKeyIds: missing, dataKeys } : null,
  }
}

/** What vault keys have sealed in a database. */
export type Sealed = {
  check: SealedCheck | null
  /** A data key of each vault key. */
  samples: (SealedDataKey & { workspaceId: string })[]
  /** Ids of all these vault keys. */
  sealedBy: string[]
}

export async function findSealed(sql: AnySql): Promise<Sealed> {
  const check = await findCheck(sql)
  const samples = await findDataKeySamples(sql)
  return {
    check,
    samples,
    sealedBy: [...new Set([...(check === null ? [] : [check.vaultKeyId]), ...ids(samples)])],
  }
}

/** For whoever asks before a start has migrated the database; null = it has not. */
export const findSealedIfThere = async (sql: AnySql): Promise<Sealed | null> =>
  (await hasCheckTable(sql)) ? await findSealed(sql) : null

/** Whether vault keys are those of a database; {@link admitVault} says when. `fitting`: the last one that is in use. */
export async function compareVaultKeys(masters: readonly VaultKey[], { check, samples, sealedBy }: Sealed) {
  const missing = sealedBy.filter((id) => !masters.some((each) => each.id === id))
  const opened = await openedBy(masters, samples)
  const isRight =
    check === null
      ? samples.length === 0 || opened.length > 0
      : (await opensCheck(masters, check)) || (samples.length > 0 && opened.length === samples.length)
  return {
    isRight,
    missing,
    wanted: missing.length > 0 ? missing : sealedBy,
    fitting: masters.filter(({ id }) => ids(opened).includes(id)).at(-1),
  }
}

const OR_LOST =
  '; if that key is lost, set TOLLGATE_VAULT_LOST=1, and read what that costs in /docs/backups#when-the-vault-key-is-lost'

const ids = (keys: readonly Pick<SealedDataKey, 'vaultKeyId'>[]) => keys.map(({ vaultKeyId }) => vaultKeyId)

async function openedBy<Key extends SealedDataKey & { workspaceId: string }>(
  masters: readonly VaultKey[],
  keys: readonly Key[],
): Promise<Key[]> {
  const opened = await Promise.all(
    keys.map((key) =>
      unsealDataKey(masters, key).then(
        (bytes) => {
          bytes.fill(0)
          return [key]
        },
        () => [],
      ),
    ),
  )
  return opened.flat()
}
