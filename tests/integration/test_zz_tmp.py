import pytest, psutil
from tests.integration.test_results_abandoned import abandon
from tests.support.batch_lines import batches_of
@pytest.mark.parametrize("module,name", [("results","square")])
def test_a(start_worker, tmp_path, module, name):
    w = start_worker(module)
    t = w.task(name)
    seen=[]
    for i in range(7):
        abandon(w, tmp_path, t, 500); batches_of(w, 500*(i+1), timeout=60)
        seen.append([psutil.Process(p).memory_info().rss//1024 for p in (w.pid,*w.children())])
    print("SEEN", module, seen)
