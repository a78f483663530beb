import type { PostgresType } from 'postgres'

/**
 * Converts one-dimensional arrays from and to Postgres' text form, for the element types that this program uses.
 *
 * The driver could read the types from the catalogue on each new connection. That costs a round trip, and if the connection
 * breaks meanwhile the rejection is unhandled and ends the process. So the types are listed here.
 */
export const arrayTypes = {
  int2Array: arrayType(1005, Number),
  int4Array: arrayType(1007, Number),
  textArray: arrayType(1009, (text) => text),
  int8Array: arrayType(1016, Number),
} satisfies Record<string, PostgresType>

/** @param oid Number of the array type in Postgres' catalogue, which is fixed. */
function arrayType(oid: number, readElement: (text: string) => unknown) {
  return {
    to: oid,
    from: [oid],
    // Large batches arrive in text form: usage/rollup.ts builds it in one pass for each column.
    serialize: (list: readonly unknown[] | string) =>
      typeof list === 'string' ? list : `{${list.map(writeElement).join()}}`,
    parse: (text: string) => readArray(text, readElement),
  }
}

/** Always quotes texts, so that none reads as syntax or as NULL. */
function writeElement(value: unknown): string {
  if (value === null || value === undefined) return 'null'
  return typeof value === 'string' ? `"${value.replace(/[\\"]/g, '\\$&')}"` : String(value)
}

/** Parses `{a,"b c",NULL}`: elements are quoted where needed, with backslashes before quotes and backslashes. */
function readArray<T>(text: string, readElement: (text: string) => T): (T | null)[] {
  const elements: (T | null)[] = []
  for (const [, quoted, plain] of text.slice(1, -1).matchAll(/"((?:[^"\\]|\\.)*)"|([^,"]+)/gs)) {
    if (quoted !== undefined) elements.push(readElement(quoted.replace(/\\(.)/gs, '$1')))
    else if (plain !== undefined) elements.push(plain === 'NULL' ? null : readElement(plain))
  }
  return elements
}
