import type { ComponentChildren } from 'preact'
import { useId, useState } from 'preact/hooks'
import { Icon } from './icons.tsx'

/** What a phone leaves out of a row of a table. */
export type Fact = { name: string; value: ComponentChildren }

/** The last cell of a table's head, over the buttons that open cards. */
export const CardHead = () => (
  <th scope="col" class="opens">
    <span class="visually-hidden">More</span>
  </th>
)

/**
 * A row of a table that opens as a card on a phone, where the table has no room for all of its columns.
 * @param props.name Of what the row is about, for readers of screens.
 * @param props.facts What the card shows: the columns that are left out.
 * @param props.columns How many columns the table has on a wide screen, without that of the button.
 */
export function CardRow({
  name,
  facts,
  columns,
  class: className,
  children,
  id,
}: {
  name: string
  facts: readonly Fact[]
  columns: number
  class?: string
  children: ComponentChildren
  /** Of what the row is about, for actions of the keyboard. */
  id?: string
}) {
  const [isOpen, setOpen] = useState(false)
  const card = useId()
  return (
    <>
      <tr class={className} data-id={id}>
        {children}
        <td class="opens">
          <button
            type="button"
            class={isOpen ? 'button quiet is-open' : 'button quiet'}
            aria-expanded={isOpen}
            aria-controls={isOpen ? card : undefined}
            aria-label={`More of ${name}`}
            onClick={() => setOpen(!isOpen)}
          >
            <Icon name="down" />
          </button>
        </td>
      </tr>
      {isOpen && (
        <tr class="card-row" id={card}>
          <td colSpan={columns + 1}>
            <dl class="pairs">
              {facts.flatMap(({ name: fact, value }) => [
                <dt key={fact}>{fact}</dt>,
                <dd key={`${fact} value`}>{value}</dd>,
              ])}
            </dl>
          </td>
        </tr>
      )}
    </>
  )
}
