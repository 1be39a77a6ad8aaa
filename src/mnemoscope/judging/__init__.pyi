from .claim import EFFECT as EFFECT
from .claim import GATE as GATE
from .claim import Measured as Measured
from .claim import Quantifier as Quantifier
from .evidence import Evidence as Evidence
from .judge import judge_family as judge_family
from .verdict import Verdict as Verdict
