import type { Json } from '../support/server.ts'

/** A browser as far as the server can tell: it has a cookie jar, and sends what a page of the dashboard sends. */
export class Browser {
  /** Name → value. */
  readonly cookies = new Map<string, string>()

  constructor(
    readonly url: string,
    /** What the address bar shows. */
    readonly origin = url,
  ) {}

  /** @param headers Instead of the usual ones; null leaves one out. */
  async call(
    method: string,
    body: unknown = {},
    headers: Record<string, string | null> = {},
  ): Promise<{ status: number; body: Json; headers: Headers }> {
    const response = await fetch(`${this.url}/dashboard/api/${method}`, {
      method: 'POST',
      body: typeof body === 'string' ? body : JSON.stringify(body),
      headers: sent({
        'content-type': 'application/json',
        'x-tollgate-dashboard': '1',
        origin: this.origin,
        'sec-fetch-site': 'same-origin',
        host: new URL(this.origin).host,
        cookie: this.cookie,
        ...headers,
      }),
    })
    for (const line of response.headers.getSetCookie()) this.take(line)
    return { status: response.status, body: await response.json(), headers: response.headers }
  }

  signIn(rootKey: string) {
    return this.call('session.open', { rootKey })
  }

  private take(line: string): void {
    const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(line) ?? []
    if (/Max-Age=0(;|$)/.test(line)) this.cookies.delete(name)
    else this.cookies.set(name, value)
  }

  get cookie(): string | null {
    if (this.cookies.size === 0) return null
    return [...this.cookies].map(([name, value]) => `${name}=${value}`).join('; ')
  }
}

const sent = (headers: Record<string, string | null>): Record<string, string> =>
  Object.fromEntries(Object.entries(headers).filter((pair): pair is [string, string] => pair[1] !== null))
