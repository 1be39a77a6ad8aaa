from .instrument import LAWS as LAWS
from .instrument import Finding as Finding
from .instrument import Law as Law
from .instrument import Report as Report
from .instrument import check_model as check_model
