from peik.core.letter import OnUncertain as OnUncertain
from peik.core.letter import Priority as Priority
from peik.core.letter import State as State
from peik.errors import BadInput as BadInput
from peik.errors import Conflict as Conflict
from peik.errors import Denied as Denied
from peik.errors import Forbidden as Forbidden
from peik.errors import InDoubt as InDoubt
from peik.errors import NotFound as NotFound
from peik.errors import Problem as Problem
from peik.errors import StartError as StartError
from peik.errors import StoreUnavailable as StoreUnavailable
from peik.errors import TooLarge as TooLarge
from peik.errors import Unavailable as Unavailable
from peik.library.calls import Call as Call
from peik.library.enqueue import enqueue as enqueue
from peik.library.enqueue import enqueue_sync as enqueue_sync
from peik.library.front import Peik as Peik
from peik.library.handlers import Update as Update
from peik.library.letters import Letter as Letter
from peik.library.letters import QueueStats as QueueStats
from peik.library.letters import Receipt as Receipt
from peik.library.letters import Refused as Refused

__version__: str
