"""Every word that the demo says, in the order it says them. `[…]` is rich's markup; `{…}` is filled in."""

TITLE = "Peik, a courier for Telegram"
OPENING = (
    "Everything here is real but Telegram: [bold]peik serve[/] in a process of its own, a small bot, people who write"
    " to it, and a simulated Telegram that keeps a ledger of all that arrives. No token, no network."
)
ONCE = "The story takes about half a minute, and ends with the counts."
ON_AND_ON = "After the story it goes on until [bold]Ctrl-C[/], which ends it with the counts."
STARTING = "Starting the simulated Telegram and Peik …"
STARTED = "Telegram is [cyan]{sim_url}[/], Peik is [cyan]{peik_url}[/] (process {pid})."

FLOW = "Letters flow"
FLOW_LEAD = "People write to the bot; a shop tells them about their orders. All of it goes out through Peik."
FLOW_TALK = "{name} writes “{asked}” and reads “{answer}” {ms} ms later."
FLOW_END = "{accepted} letters accepted, {delivered} arrived. A quiet day."

DARK = "Telegram goes dark"
DARK_LEAD = "Connections are cut and refused. The shop does not know, and does not need to."
DARK_QUESTION = "Are you there?"
DARK_FOUND = "Peik noticed: the route is [red]down[/], and only getMe knocks, never a letter."
DARK_STILL = (
    "{count} more letters accepted, each on disk before the shop heard “accepted”. Arrived at Telegram: {arrived}."
)
DARK_COST = (
    "What the outage has cost them so far: {attempts} attempts, {uncertain} uncertain tries, {failed} dead letters."
)

BACK = "Telegram returns"
BACK_LEAD = "The next knock is answered, and the backlog goes out: in order, at Telegram's pace."
BACK_FOUND = "Peik was back on the road {seconds} s after Telegram."
BACK_END = "All {count} arrived within {seconds} s. In the right order: {ordered} of {chats} chats."
BACK_TALK = "{name} had asked “{asked}” in the dark, and has an answer now."

CRASH = "kill -9"
CRASH_LEAD = "{count} letters go out. Telegram is slow to answer some of them, and then …"
CRASH_KILL = "[bold red]kill -9 {pid}[/], with {waiting} letters under way."
CRASH_BACK = "Peik is up again after {seconds} s. It says: [yellow]“{words}” ({count})[/]"
CRASH_ARRIVED = (
    "Of these {count}, {arrived} had reached Telegram and {missing} had not. Only Telegram's ledger knows which."
)
CRASH_RESENT = "{count} are sent again and say so in [yellow]uncertain_tries[/]. Better twice than never."
CRASH_HELD = (
    "One is an invoice, accepted with [yellow]on_uncertain: hold[/]. It is now [red]{state}[/], reason “{reason}”:"
    " a person decides."
)
CRASH_HELD_ARRIVED = "(The ledger says that it had arrived. A second one would have been a second bill.)"
CRASH_NEW = "{count} letters that the shop offered while Peik was dead were accepted as soon as it was up."
CRASH_END = "All {count} letters have ended, {arrived} of them at Telegram."

FLOOD = "A flood"
FLOOD_LEAD = "News for {crowd} people and for one busy group, all at once."
FLOOD_ACCEPTED = "{count} letters accepted in {ms} ms. Sending them as fast would be answered 429, again and again."
FLOOD_TALK = "Amid the flood {name} writes “{asked}” and has an answer after {ms} ms: people go first."
FLOOD_END = (
    "The last arrived after {seconds} s; never more than {rate} within a second (Telegram allows 30, and 1 to one chat)."
    " 429s: [bold]{limited}[/]."
)

BLOCKED = "A dead letter"
BLOCKED_LEAD = "{name} blocks the bot. The shop writes anyway."
BLOCKED_END = "Letter {letter}: [red]{state}[/], in Telegram's own words: “{reason}”."
BLOCKED_LOOK = "On the dashboard: [cyan]{url}/admin/letters/{letter}[/]"
BLOCKED_OTHER = (
    "Told {ms} ms after it was handed in, and kept with its history. Nobody had to wait: {name}'s letter arrived."
)

COUNTS = "The counts"
COUNTS_LEAD = "What callers were promised, against the ledger of what really arrived."
COUNTS_ACCEPTED = "accepted by Peik"
COUNTS_DELIVERED = "arrived at Telegram"
COUNTS_FAILED = "dead letters, each with its reason"
COUNTS_FAILED_ARRIVED = ", {arrived} of them arrived after all"
COUNTS_WAITING = "still waiting when the demo was stopped"
COUNTS_LOST = "lost"
COUNTS_DOUBLED = "arrived twice"
COUNTS_UNCERTAIN = "tries that were uncertain, and reported so"

ENCORE = "And on it goes"
ENCORE_LEAD = "Now and then Telegram goes dark, or Peik is killed. Look around; Ctrl-C ends it and counts."
LOOK = "Watch it on the dashboard, and press “Sign in” there: [cyan]{url}/admin#key={key}[/]"
ENCORE_API = "Peik's API        [cyan]{url}/docs[/]   (key: {key})"
ENCORE_TRY = "[dim]curl -H 'Authorization: Bearer {key}' {url}/v1/stats[/]"
ENCORE_SIM = "Telegram's side   [cyan]{url}/sim/counters[/]   (and /sim/sent, /sim/faults …)"
ENCORE_DARK = "Telegram is dark for {seconds} s …"
ENCORE_LIT = "… and back. {waiting} letters had waited, and have arrived."
ENCORE_KILL = "kill -9 {pid}, and a new Peik after {seconds} s."
ENCORE_NEXT = (
    "With a bot of your own: [bold]BOT_TOKEN=… {peik} serve[/]; then let the bot use http://127.0.0.1:8081"
    " in place of https://api.telegram.org."
)

STOPPING = "Stopping; one moment for what is in flight …"
STUCK = "The demo waited {seconds} s in vain {what}. Peik's last words:\n{log}"

LAST_LINE = (
    "accepted: {accepted} delivered: {delivered} lost: {lost} doubled: {doubled} (uncertain tries: {uncertain_tries})"
)

PEOPLE = ("Ada", "Babak", "Chen", "Dina", "Emeka", "Farah", "Goran", "Hana", "Iris", "João", "Kaveh", "Lena")
LEAVER = "Mina"
QUESTIONS = ("/start", "Is my parcel here?", "When do you open?", "Thank you!", "Can I change the address?")
ANSWER = "Hello {name}, the courier is on the way"
ORDERS = ("Your order is packed", "Your order has left", "Your order is at the door", "Your order was signed for")
NEWS = "The shop is open again"
INVOICE = "Your invoice: 40 euro"
AWAY = "We missed you"
