import type { ComponentChildren, TargetedInputEvent } from 'preact'
import { useId, useState } from 'preact/hooks'
import { CallFailed } from '../api.ts'
import { Icon, type IconName } from './icons.tsx'

/** A button that says why it is off instead of vanishing. */
export function Button({
  children,
  icon,
  kind = 'plain',
  lacking = null,
  isBusy = false,
  isPressed,
  label,
  type = 'button',
  onClick,
}: {
  children?: ComponentChildren
  icon?: IconName
  kind?: 'plain' | 'main' | 'danger' | 'quiet'
  /** Why it is off; null = it is on. */
  lacking?: string | null
  isBusy?: boolean
  /** Of a button that stays on or off. */
  isPressed?: boolean
  /** The words of a button that shows only its icon. */
  label?: string
  type?: 'button' | 'submit'
  onClick?: () => void
}) {
  return (
    <button
      type={type}
      class={`button ${kind}`}
      aria-disabled={lacking !== null || isBusy}
      title={lacking ?? label}
      aria-pressed={isPressed}
      aria-label={label}
      onClick={(event) => {
        if (lacking !== null || isBusy) event.preventDefault()
        else onClick?.()
      }}
    >
      {icon !== undefined && <Icon name={icon} />}
      {children !== undefined && <span>{children}</span>}
      {lacking !== null && <span class="visually-hidden">, {lacking}</span>}
    </button>
  )
}

/** A labelled text field, with its hint and its error below it. */
export function Field({
  label,
  hint,
  error = null,
  value,
  onInput,
  ...rest
}: {
  label: string
  hint?: ComponentChildren
  error?: string | null
  value: string
  onInput: (value: string) => void
  placeholder?: string
  autoComplete?: string
  required?: boolean
  maxLength?: number
  inputMode?: 'numeric'
  /** A browser's own field for dates; else a text. */
  type?: 'datetime-local'
  isMono?: boolean
  /** What is typed is not shown. */
  isSecret?: boolean
  /** A phone shows its keys for digits. */
  isNumber?: boolean
}) {
  const id = useId()
  const { isMono = false, isSecret = false, isNumber = false, type = 'text', ...attributes } = rest
  const props = {
    ...attributes,
    id,
    value,
    spellcheck: false,
    'aria-invalid': error !== null,
    'aria-describedby': `${id}-hint`,
    onInput: (event: TargetedInputEvent<HTMLInputElement>) => onInput(event.currentTarget.value),
    ...(isMono && { class: 'mono' }),
    ...(isNumber && { inputMode: 'numeric' as const, pattern: '[0-9]+(\\.[0-9]+)?' }),
  }
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {isSecret ? (
        <input {...props} type="password" />
      ) : type === 'text' ? (
        <input {...props} type="text" />
      ) : (
        <input {...props} type={type} />
      )}
      <p class={error === null ? 'hint' : 'hint bad'} id={`${id}-hint`}>
        {error ?? hint}
      </p>
    </div>
  )
}

/** What the server said, in its words, with the id under which its log has it. */
export function Failure({ failed, onRetry }: { failed: CallFailed; onRetry?: () => void }) {
  return (
    <div class="notice bad" role="alert">
      <Icon name="warning" />
      <div>
        <p>
          {failed.message} <Code>{failed.code}</Code>
        </p>
        {failed.requestId !== null && (
          <p class="secondary">
            Request <code>{failed.requestId}</code>
          </p>
        )}
      </div>
      {onRetry !== undefined && (
        <Button icon="refresh" onClick={onRetry}>
          Retry
        </Button>
      )}
    </div>
  )
}

const Code = ({ children }: { children: string }) => <code class="code">{children}</code>

/** Runs an action of a form: one at a time, with its failure kept for the page. */
export function useAction<T, Given extends unknown[] = []>(
  run: (...given: Given) => Promise<T>,
): {
  start: (...given: Given) => Promise<void>
  isBusy: boolean
  failed: CallFailed | null
} {
  const [isBusy, setBusy] = useState(false)
  const [failed, setFailed] = useState<CallFailed | null>(null)
  const start = async (...given: Given) => {
    if (isBusy) return
    setBusy(true)
    setFailed(null)
    try {
      await run(...given)
    } catch (cause) {
      if (!(cause instanceof CallFailed)) throw cause
      setFailed(cause)
    } finally {
      setBusy(false)
    }
  }
  return { start, isBusy, failed }
}

/**
 * Copies text. On plain HTTP from other machines browsers offer no clipboard, so a hidden field is selected and copied.
 * @returns whether it was copied.
 */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    const field = document.createElement('textarea')
    field.value = text
    field.className = 'visually-hidden'
    // Inside an open dialog everything else is inert.
    const place = document.querySelector('dialog[open]') ?? document.body
    const before = document.activeElement
    place.append(field)
    field.select()
    const isCopied = document.execCommand('copy')
    field.remove()
    if (before instanceof HTMLElement) before.focus()
    return isCopied
  }
}

export function CopyButton({ text, label = 'Copy' }: { text: string; label?: string }) {
  const [said, setSaid] = useState<string | null>(null)
  return (
    <Button
      icon={said === 'Copied' ? 'check' : 'copy'}
      onClick={() =>
        void copyText(text).then((isCopied) => {
          setSaid(isCopied ? 'Copied' : 'Select and copy it yourself')
          setTimeout(() => setSaid(null), 1500)
        })
      }
    >
      <span role="status">{said ?? label}</span>
    </Button>
  )
}

/** A command or a text to copy. */
export function Snippet({ text }: { text: string }) {
  return (
    <div class="snippet">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and the keyboard must be able to scroll it */}
      <pre tabIndex={0}>
        <code>{text}</code>
      </pre>
      <CopyButton text={text} />
    </div>
  )
}
