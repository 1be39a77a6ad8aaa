from .differences import DIFF_HEADER as DIFF_HEADER
from .differences import diff_rows as diff_rows
from .page import Example as Example
from .page import rulings_page as rulings_page
from .words import VERDICT_HEADER as VERDICT_HEADER
from .words import verdict_rows as verdict_rows
