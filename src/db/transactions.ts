import { type AnySql, connect, type DatabaseAddress, type OnStatement, type Sql } from './connect.ts'

/**
 * Transactions on connections of their own, one client of the driver each.
 *
 * The driver's own `begin` was refused: in version 3.4.9 on Bun 1.4.5, a connection that breaks inside a transaction ends
 * the process with an uncaught error (it sends the rollback to a socket that is gone), and the pool it belonged to never
 * answers again. Here a client whose connection has closed is never used again: its transaction fails at once, and the
 * next one gets a new client.
 */
export class Transactions {
  readonly #address: DatabaseAddress
  readonly #options: TransactionsOptions
  #idle: Client[] = []
  #busy = 0
  /** In line for a connection. Bounded by those who wait for their deadline at the same time. */
  #waiting: (() => void)[] = []
  #isEnded = false

  constructor(address: DatabaseAddress, options: TransactionsOptions) {
    this.#address = address
    this.#options = options
  }

  /**
   * Runs `work` between begin and commit; rolls back when it throws.
   * @param isGivenUp Asked before each statement and before the commit: once true, the transaction is rolled back.
   * @throws what `work` throws; an error with a connection's code when the connection broke.
   */
  async run<T>(work: (tx: AnySql) => T | Promise<T>, isGivenUp = () => false): Promise<T> {
    const client = await this.#acquire()
    try {
      await client.statement('begin')
      let value: T
      try {
        value = await client.unlessBroken(async () => work(checked(client, isGivenUp)))
        if (isGivenUp()) throw new Error('the transaction was given up')
      } catch (cause) {
        // A rollback that fails leaves a connection nobody should have again.
        await client.statement('rollback').catch(() => client.discard())
        throw cause
      }
      await client.statement('commit')
      return value
    } finally {
      this.#release(client)
    }
  }

  /** Closes what is idle; what is under way, or in line, closes when it is done. */
  async end(options: { timeout: number }): Promise<void> {
    this.#isEnded = true
    const idle = this.#idle.splice(0)
    await Promise.all(idle.map((client) => client.end(options)))
  }

  async #acquire(): Promise<Client> {
    while (this.#busy >= this.#options.connectionsMax)
      await new Promise<void>((resolve) => this.#waiting.push(resolve))
    this.#busy++
    for (let client = this.#idle.pop(); client !== undefined; client = this.#idle.pop())
      if (!client.isBroken) return client
    return new Client(this.#address, this.#options)
  }

  #release(client: Client): void {
    this.#busy--
    if (client.isBroken || this.#isEnded) client.discard()
    else this.#idle.push(client)
    this.#waiting.shift()?.()
  }
}

type TransactionsOptions = {
  connectionsMax: number
  statementTimeoutMs?: number | undefined
  /** Told of each connection that closes without our doing. */
  onBroken?: () => void
  onStatement?: OnStatement | undefined
}

/** One connection, for one transaction at a time. */
class Client {
  readonly sql: Sql
  #failure: Error | null = null
  /**
   * Tells each of those who wait that the connection has closed. Not one promise that all of them race against: it would
   * keep a reaction, and the result, of every statement as long as the connection lives.
   */
  readonly #waiting = new Set<(failure: Error) => void>()

  constructor(address: DatabaseAddress, { onBroken, onStatement, statementTimeoutMs }: TransactionsOptions) {
    const onClose = () => {
      if (!this.isBroken) onBroken?.()
      this.#break()
    }
    this.sql = connect(address, { connectionsMax: 1, statementTimeoutMs, onClose, onStatement })
  }

  get isBroken(): boolean {
    return this.#failure !== null
  }

  statement(text: 'begin' | 'commit' | 'rollback'): Promise<unknown> {
    return this.unlessBroken(() => this.sql.unsafe(text))
  }

  /** @throws when the connection closes meanwhile: what was sent on it then has no answer. */
  async unlessBroken<T>(run: () => PromiseLike<T>): Promise<T> {
    if (this.#failure !== null) throw this.#failure
    const broken = Promise.withResolvers<never>()
    this.#waiting.add(broken.reject)
    try {
      return await Promise.race([run(), broken.promise])
    } finally {
      this.#waiting.delete(broken.reject)
    }
  }

  discard(): void {
    this.end({ timeout: 0 }).catch(() => {}) // it is given up; why, was told to whoever used it
  }

  end(options: { timeout: number }): Promise<void> {
    this.#break()
    return this.sql.end(options)
  }

  #break(): void {
    if (this.#failure !== null) return
    const failure = new Error('the connection closed inside a transaction')
    this.#failure = Object.assign(failure, { code: 'CONNECTION_CLOSED' })
    for (const tell of this.#waiting) tell(failure)
  }
}

/** The client's tagged template, which refuses to send once there is nothing left to send it to, or for. */
function checked(client: Client, isGivenUp: () => boolean): AnySql {
  const goOn = () => {
    if (isGivenUp()) throw new Error('the transaction was given up')
    if (client.isBroken) throw new Error('the connection closed inside a transaction')
  }
  return new Proxy(client.sql, {
    apply: (sql, self, args) => {
      goOn()
      return Reflect.apply(sql, self, args)
    },
    get: (sql, name) => {
      if (name === 'unsafe') goOn()
      return Reflect.get(sql, name)
    },
  })
}
