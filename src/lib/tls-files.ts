import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { Tls } from './database-url.ts'
import { fileProblem } from './file-problem.ts'

/**
 * What is wrong with the PEM files of a `DATABASE_URL`, in words that name parameter and file; null = nothing. A start looks
 * once, so that a wrong file does not look like a server that refuses. Each connection reads them again.
 */
export function tlsFileProblem({ rootFile, certFile, keyFile, keyPassword }: Tls): string | null {
  try {
    if (rootFile !== null) readCertificates('sslrootcert', rootFile)
    if (certFile === null || keyFile === null) return null
    const [own] = readCertificates('sslcert', certFile)
    if (own?.checkPrivateKey(readKey(keyFile, keyPassword)) === false)
      throw new PemError('sslkey', keyFile, `is not the key of the certificate in sslcert=${certFile}`)
    return null
  } catch (cause) {
    if (cause instanceof PemError) return cause.message
    throw cause
  }
}

class PemError extends Error {
  override name = 'PemError'
  constructor(parameter: string, path: string, problem: string) {
    super(`${parameter}=${path}, which ${problem}`)
  }
}

function readCertificates(parameter: string, path: string): X509Certificate[] {
  const texts = read(parameter, path).match(CERTIFICATE) ?? []
  if (texts.length === 0) throw new PemError(parameter, path, 'contains no certificate in PEM form')
  try {
    return texts.map((text) => new X509Certificate(text))
  } catch {
    throw new PemError(parameter, path, 'contains a certificate that cannot be read')
  }
}

const CERTIFICATE = /-----BEGIN (?:TRUSTED )?CERTIFICATE-----[^-]+-----END (?:TRUSTED )?CERTIFICATE-----/g

function readKey(path: string, password: string | null): KeyObject {
  const text = read('sslkey', path)
  try {
    return createPrivateKey({ key: text, ...(password === null ? {} : { passphrase: password }) })
  } catch {
    const isEncrypted = text.includes('ENCRYPTED')
    const problem = !isEncrypted
      ? 'contains no private key in PEM form'
      : password === null
        ? 'is encrypted: add sslpassword'
        : 'sslpassword does not decrypt'
    throw new PemError('sslkey', path, problem)
  }
}

function read(parameter: string, path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (cause) {
    throw new PemError(parameter, path, `cannot be read: ${fileProblem(cause)}`)
  }
}
