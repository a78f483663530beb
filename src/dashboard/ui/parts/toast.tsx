import { signal } from '@preact/signals'
import { Button } from './controls.tsx'
import { Icon } from './icons.tsx'

type Toast = { id: number; text: string; undo?: () => Promise<void> }

const toasts = signal<readonly Toast[]>([])
let last = 0

/**
 * Says what was done, for ten seconds.
 * @param undo Takes it back; throws CallFailed. Absent = it cannot be taken back.
 */
export function toast(text: string, undo?: () => Promise<void>): void {
  const id = ++last
  toasts.value = [...toasts.value.slice(-2), { id, text, ...(undo !== undefined && { undo }) }]
  setTimeout(() => dismiss(id), 10_000)
}

const dismiss = (id: number) => {
  toasts.value = toasts.value.filter((each) => each.id !== id)
}

/** Where they are said. Always there, so that readers of screens hear what comes into it. */
export const Toasts = () => (
  <div class="toasts" role="status">
    {toasts.value.map(({ id, text, undo }) => (
      <div key={id} class="toast">
        <Icon name="check" />
        <p>{text}</p>
        {undo !== undefined && (
          <Button
            onClick={() => {
              dismiss(id)
              undo().catch((cause: Error) => toast(`Not undone: ${cause.message}`))
            }}
          >
            Undo
          </Button>
        )}
        <Button kind="quiet" label="Close" icon="cross" onClick={() => dismiss(id)} />
      </div>
    ))}
  </div>
)
