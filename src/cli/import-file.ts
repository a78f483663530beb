import { createReadStream } from 'node:fs'
import { type ImportFormat, type ImportRecord, readImport } from '../lib/imports/read-import.ts'
import { hashKey } from '../verify/secret.ts'

/**
 * Yields the keys in a file of any size, as `readImport` does.
 * @throws FileError when the file does not have this format; the system's error when it cannot be read.
 */
export const readImportFile = (
  path: string,
  format: ImportFormat,
  { hasApi, chunkBytes = 256 * 1024 }: { hasApi: boolean; chunkBytes?: number },
): AsyncGenerator<ImportRecord> =>
  readImport(createReadStream(path, { highWaterMark: chunkBytes }), format, { hasApi, hashOf: hashKey })
