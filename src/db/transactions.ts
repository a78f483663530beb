import { type AnySql, connect, type DatabaseAddress, type OnStatement, type Sql } from './connect.ts'

/**
 * Transactions on connections of their own, with one client of the driver each.
 *
 * Not the driver's `begin`: in 3.4.9 on Bun 1.4.5, a connection that breaks inside a transaction ends the process with an
 * uncaught error (it sends the rollback to a closed socket), and its pool never answers again. Here a client whose
 * connection closed is not used again: its transaction fails at once, and the next one gets a new client.
 */
export class Transactions {
  readonly #address: DatabaseAddress
  readonly #options: TransactionsOptions
  #idle: Client[] = []
  #busy = 0
  /** Transactions waiting for a connection. Bounded, as each waits no longer than its time limit. */
  #waiting: (() => void)[] = []
  #isEnded = false

  constructor(address: DatabaseAddress, options: TransactionsOptions) {
    this.#address = address
    this.#options = options
  }

  /**
   * Runs `work` between begin and commit; rolls back when it throws.
   * @param isGivenUp Called before each statement and before the commit. When it returns true, the transaction is rolled
   *   back.
   * @throws the error of `work`; an error with a connection's code when the connection broke.
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
        // After a failed rollback the connection's state is unknown: nobody may use it again.
        await client.statement('rollback').catch(() => client.discard())
        throw cause
      }
      await client.statement('commit')
      return value
    } finally {
      this.#release(client)
    }
  }

  /** Closes idle connections now, and the others after their running or waiting transactions. */
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
  /** Called for each connection that closed without having been told to. */
  onBroken?: () => void
  onStatement?: OnStatement | undefined
}

/** One connection, for one transaction at a time. */
class Client {
  readonly sql: Sql
  #failure: Error | null = null
  /**
   * Callbacks of waiting statements, called when the connection closes. A single promise that all of them race against
   * would keep a reaction, and the result, of every statement for the life of the connection.
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

  /** @throws when the connection closes meanwhile; statements sent on it have no answer then. */
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
    this.end({ timeout: 0 }).catch(() => {}) // no longer used; its caller got the error
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

/**
 * The client's tagged template. It throws instead of sending when the connection is closed or the transaction was given up.
 */
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
