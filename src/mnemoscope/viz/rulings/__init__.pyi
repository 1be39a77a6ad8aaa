from .page import Example as Example
from .page import rulings_page as rulings_page
from .rows import DIFF_HEADER as DIFF_HEADER
from .rows import VERDICT_HEADER as VERDICT_HEADER
from .rows import diff_rows as diff_rows
from .rows import verdict_rows as verdict_rows
