import type { PostgresType } from 'postgres'

/**
 * Arrays of one dimension, to and from Postgres' text form, for the types this program uses.
 *
 * The driver can find such types out by itself, with a question on each new connection. That costs a round trip, and when
 * the connection breaks meanwhile nobody hears the rejection, which ends the process. So they are named here instead.
 */
export const arrayTypes = {
  int2Array: arrayType(1005, Number),
  int4Array: arrayType(1007, Number),
  textArray: arrayType(1009, (text) => text),
  int8Array: arrayType(1016, Number),
} satisfies Record<string, PostgresType>

/** @param oid Number of the array type in Postgres' catalogue, the same everywhere. */
function arrayType(oid: number, readElement: (text: string) => unknown) {
  return {
    to: oid,
    from: [oid],
    // Large batches come as the text form already (usage/rollup.ts): they build it in one pass a column.
    serialize: (list: readonly unknown[] | string) =>
      typeof list === 'string' ? list : `{${list.map(writeElement).join()}}`,
    parse: (text: string) => readArray(text, readElement),
  }
}

/** Texts are quoted whatever they hold, so that none can be taken for syntax or for NULL. */
function writeElement(value: unknown): string {
  if (value === null || value === undefined) return 'null'
  return typeof value === 'string' ? `"${value.replace(/[\\"]/g, '\\$&')}"` : String(value)
}

/** `{a,"b c",NULL}`: quoted where needed, with backslashes before what would end the quotes. */
function readArray<T>(text: string, readElement: (text: string) => T): (T | null)[] {
  const elements: (T | null)[] = []
  for (const [, quoted, plain] of text.slice(1, -1).matchAll(/"((?:[^"\\]|\\.)*)"|([^,"]+)/gs)) {
    if (quoted !== undefined) elements.push(readElement(quoted.replace(/\\(.)/gs, '$1')))
    else if (plain !== undefined) elements.push(plain === 'NULL' ? null : readElement(plain))
  }
  return elements
}
