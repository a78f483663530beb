import type { ComponentChildren } from 'preact'
import { useEffect, useId, useState } from 'preact/hooks'
import { place, setQuery } from '../route.ts'
import { Field } from './controls.tsx'

/** A labelled list to choose from. */
export function Choice<Value extends string>({
  label,
  value,
  options,
  onChange,
  isLabelHidden = false,
}: {
  label: string
  value: Value
  options: readonly { value: Value; name: string }[]
  onChange: (value: Value) => void
  isLabelHidden?: boolean
}) {
  const id = useId()
  return (
    <div class="field choice">
      <label for={id} class={isLabelHidden ? 'visually-hidden' : ''}>
        {label}
      </label>
      <select
        id={id}
        value={value}
        onChange={(event) => {
          const chosen = options.find((each) => each.value === event.currentTarget.value)
          if (chosen !== undefined) onChange(chosen.value)
        }}
      >
        {options.map((each) => (
          <option key={each.value} value={each.value}>
            {each.name}
          </option>
        ))}
      </select>
    </div>
  )
}

/** A labelled text of several lines. */
export function Area({
  label,
  hint,
  error = null,
  value,
  rows = 4,
  onInput,
}: {
  label: string
  hint?: ComponentChildren
  error?: string | null
  value: string
  rows?: number
  onInput: (value: string) => void
}) {
  const id = useId()
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <textarea
        id={id}
        class="mono"
        rows={rows}
        value={value}
        spellcheck={false}
        aria-invalid={error !== null}
        aria-describedby={`${id}-hint`}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
      <p class={error === null ? 'hint' : 'hint bad'} id={`${id}-hint`}>
        {error ?? hint}
      </p>
    </div>
  )
}

export function Check({
  label,
  hint,
  checked,
  onChange,
}: {
  label: string
  hint?: string
  checked: boolean
  onChange: (checked: boolean) => void
}) {
  const id = useId()
  return (
    <div class="field">
      <label class="check">
        <input
          type="checkbox"
          checked={checked}
          aria-describedby={`${id}-hint`}
          onChange={(event) => onChange(event.currentTarget.checked)}
        />
        {label}
      </label>
      <p class="hint" id={`${id}-hint`}>
        {hint}
      </p>
    </div>
  )
}

/** A field whose text is in the address, under `name`. It takes effect with Enter, and half a second after the last key. */
export function QueryField({
  name,
  label,
  placeholder,
}: {
  name: string
  label: string
  placeholder: string
}) {
  const asked = place.value.query.get(name) ?? ''
  const [text, setText] = useState(asked)
  useEffect(() => setText(asked), [asked])
  const apply = () => {
    if (text.trim() !== asked) setQuery({ [name]: text.trim(), after: null })
  }
  useEffect(() => {
    const timer = setTimeout(apply, 500)
    return () => clearTimeout(timer)
  }, [text])
  return (
    <form
      class="query"
      onSubmit={(event) => {
        event.preventDefault()
        apply()
      }}
    >
      <Field label={label} value={text} onInput={setText} placeholder={placeholder} maxLength={256} />
    </form>
  )
}

/** Reads the JSON object of a field. @returns the reason when it is none; an empty text is `{}`. */
export function readObject(text: string): { value: Record<string, unknown> } | { error: string } {
  if (text.trim() === '') return { value: {} }
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { value: { ...value } }
    return { error: 'It must be a JSON object, such as {"plan": "pro"}.' }
  } catch (cause) {
    return { error: cause instanceof Error ? cause.message : 'It is no JSON.' }
  }
}
