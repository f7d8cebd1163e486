import pytest
from tests.integration.test_results_abandoned import abandon, memory_of
from tests.support.batch_lines import batches_of
@pytest.mark.parametrize("module,name", [("results","square"),("plain","add")])
def test_a(start_worker, tmp_path, module, name):
    w = start_worker(module)
    t = w.task(name)
    seen=[]
    for i in range(6):
        if module=="results":
            abandon(w, tmp_path, t, 500); batches_of(w, 500*(i+1), timeout=60)
        else:
            rs=[t.delay(1,2) for _ in range(500)]; [r.get(timeout=20) for r in rs]
        import psutil
        seen.append([psutil.Process(p).memory_info().rss//1024 for p in (w.pid,*w.children())])
    print("SEEN", module, seen)
