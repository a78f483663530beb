import type { ComponentChildren } from 'preact'
import type { ExplainKeyReply } from '../../../doors/v1/keys/schema.ts'
import { dayAndTime, exact, fromNow } from '../format.ts'
import { Icon } from '../parts/icons.tsx'
import { limitText } from './key-state.ts'

const VERDICTS = {
  passes: { icon: 'check', word: 'Passes' },
  refuses: { icon: 'cross', word: 'Refuses' },
  depends: { icon: 'more', word: 'Depends on the request' },
} as const
const CHECKS = {
  workspace: 'Workspace',
  enabled: 'Enabled',
  api: 'API',
  expiry: 'Expiry',
  address: 'Address',
  permissions: 'Permissions',
  ratelimit: 'Rate limit',
  credits: 'Credits',
} as const

type Check = ExplainKeyReply['checks'][number]

/** The checks of a verification in their order, each with its fact. @param props.actionOf The button that changes it; null = there is none. */
export const Checks = ({
  checks,
  actionOf = () => null,
}: {
  checks: readonly Check[]
  actionOf?: (check: Check) => ComponentChildren
}) => (
  <ol class="checks">
    {checks.map((check, at) => {
      const action = actionOf(check)
      return (
        <li key={at} class={check.verdict}>
          <Icon name={VERDICTS[check.verdict].icon} />
          <b>
            {CHECKS[check.check]}
            <span class="visually-hidden">: {VERDICTS[check.verdict].word}.</span>
          </b>
          <span>{factOf(check)}</span>
          {action !== null && <div class="action">{action}</div>}
        </li>
      )
    })}
  </ol>
)

/** In short, with times as the viewer counts them; else the server's sentence. */
function factOf({ check, fact, limit, credits }: Check): string {
  if (check === 'ratelimit' && limit !== undefined) {
    const used = `${limit.name}: ${exact(limit.limit - limit.remaining)} of ${exact(limit.limit)} used, ${limitText(limit)}`
    const owner = limit.owner === 'identity' ? ', of the identity' : ''
    const opens = limit.remaining === 0 ? `; opens again ${secondsFromNow(limit.reset)}` : ''
    const named = fact.includes('only when') ? '; counts only when a request names it' : ''
    return used + owner + opens + named
  }
  if (check === 'credits' && credits !== undefined) {
    const { refill } = credits
    const more =
      refill === undefined
        ? ''
        : `; +${exact(refill.amount)} ${refill.dueAt <= Date.now() ? 'with the next verification' : fromNow(refill.dueAt)}`
    return `${exact(credits.remaining)} left${more}`
  }
  return fact.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/, (text) => {
    const at = Date.parse(text)
    return `${dayAndTime(at)} (${fromNow(at)})`
  })
}

function secondsFromNow(at: number): string {
  const left = Math.max(0, Math.ceil((at - Date.now()) / 1000))
  return left < 120 ? `in ${left} s` : fromNow(at)
}
