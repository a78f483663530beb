import type { DatabaseUrl } from '../lib/database-url.ts'

/**
 * Explains in one line why a database cannot be used and what to do. Unknown errors are shown in the words of the driver or
 * Postgres. These never contain the password.
 */
export function explain(cause: unknown, url: Pick<DatabaseUrl, 'hosts' | 'user' | 'database'>): string {
  const error = cause instanceof Error ? cause : new Error(String(cause))
  const said = error.message.replace(/\s*\n\s*/g, ' ')
  const code = 'code' in error ? String(error.code) : ''
  const answeredFrom = 'address' in error && typeof error.address === 'string' ? error.address : null
  // The address that a host name resolved to. Empty when the URL has the address itself.
  const address =
    answeredFrom === null || url.hosts.some(({ host }) => host === answeredFrom) ? '' : ` (${answeredFrom})`
  const where = url.hosts
    .map(({ host, port }) =>
      host.startsWith('/')
        ? `${host}/.s.PGSQL.${port}`
        : `${host.includes(':') ? `[${host}]` : host}:${port}`,
    )
    .join(' and ')
  const role = url.user === undefined ? 'the role' : `role ${url.user}`
  switch (code) {
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
    case 'EAI_NONAME':
    case 'DNS_ENOTFOUND':
      return `the host of ${where} cannot be resolved; correct its name in DATABASE_URL, or the DNS of this machine`
    case 'ECONNREFUSED':
      return `nothing listens at ${where}${address}; start Postgres there, or correct host and port in DATABASE_URL`
    case 'ENOENT':
    case 'EACCES':
      return `the socket ${where} cannot be used (${code}); correct its folder and port in DATABASE_URL`
    case 'CONNECT_TIMEOUT':
    case 'ETIMEDOUT':
    case 'EHOSTUNREACH':
    case 'ENETUNREACH':
      return `${where} did not answer in time; check host and port, firewalls, and whether Postgres is overloaded`
    case 'ECONNRESET':
    case 'CONNECTION_CLOSED':
      return `${where} closes the connection; check that it is a Postgres, and whether it needs TLS (?sslmode=require)`
    case 'NO_TLS':
      return `DATABASE_URL requires TLS, but ${where} does not support it; switch on ssl there, or use ?sslmode=disable if the network is safe`
    case 'CERT_HAS_EXPIRED':
      return `the certificate of ${where} has expired; renew it there`
    case 'ERR_TLS_CERT_ALTNAME_INVALID':
      return `the certificate of ${where} is for another host name; connect by the host name in it, or use ?sslmode=verify-ca`
    case '28P01':
      return `the password for ${role} is wrong; correct it in DATABASE_URL; percent-encode characters such as @ : / ? # %`
    case '28000':
      if (/client certificate|certificate authentication/.test(said))
        return `${where} wants a certificate of ${role} that it trusts: ${said}; give it with ?sslcert= and ?sslkey=`
      return /no encryption|SSL off/.test(said)
        ? `${where} accepts no connection without TLS; add ?sslmode=require to DATABASE_URL (${said})`
        : `${where} does not accept ${role}: ${said}`
    case '3D000':
      return `${said}; create it, or correct its name at the end of DATABASE_URL`
    case '57P03':
      return `${where} does not accept connections yet: ${said}; wait and try again`
    case '53300':
      return `${where} has no connection left for ${role} (${said}); raise max_connections or the limit of the role, or close other connections`
    case '42501':
      return `${role} lacks a permission: ${said}; grant it, or connect as the owner of Tollgate's tables`
    case '25006':
      return `${where} is read only: ${said}; connect to the primary`
    // Used by poolers for various errors.
    case '08P01':
      if (/SSL required|TLS required/i.test(said))
        return `${where} accepts no connection without TLS; add ?sslmode=require to DATABASE_URL (${said})`
      return `${where} refuses the connection: ${said}; if that is a pooler, look at its configuration and log`
  }
  if (/ALERT/.test(code) || /alert/i.test(said))
    return `${where} ended the TLS handshake (${said}); if it asks for a certificate, give one that it trusts with ?sslcert= and ?sslkey=`
  if (/SELF_SIGNED|UNABLE_TO|CERT_/.test(code))
    return `the certificate of ${where} cannot be verified (${code}); give the file of its authority with ?sslrootcert=, or use ?sslmode=require, which does not verify certificates`
  return said === '' ? `${where} cannot be used (${code})` : said
}
