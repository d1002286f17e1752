"""The methods that nearfar is compared with, as scikit-learn estimators with the interface of its learners.

They are references: float64, one thread will do, and nothing of the parameter server. Each holds matrices of
d × d numbers, so they are for hundreds or a few thousand features.
"""

from nearfar.baselines.euclidean import Euclidean
from nearfar.baselines.itml import ITML
from nearfar.baselines.kiss import KISS
from nearfar.baselines.lda import LDA
from nearfar.baselines.rca import RCA
from nearfar.baselines.xing2002 import Xing2002

__all__ = ["ITML", "KISS", "LDA", "RCA", "Euclidean", "Xing2002"]
