import time, numpy as np
from .bare import run_bare
from rumor.sim import consensus, noise, NetworkConfig
from rumor.gossip import GoSGD
from rumor.gossip.sgp import SGP
from .test_paper_gossip import Unweighted
def test_probe():
    nets={"ideal":"ideal","d1":NetworkConfig(latency_s=.05),"d2":NetworkConfig(latency_s=.1,jitter=.5),"d3":NetworkConfig(latency_s=.4,jitter=.5),"d4":NetworkConfig(latency_s=.1,jitter=.5,duplicates=.1),"wan":"wan","reord":NetworkConfig(latency_s=.1,reorder=.1),"lossy":"lossy"}
    for rn,rule in (("sgp",SGP),("gosgd",lambda:GoSGD(.8)),("unw",Unweighted)):
        for topo in ("star","scale-free","exponential","epidemic-local"):
            for k,net in nets.items():
                t=time.time()
                start,*_,end=run_bare(consensus(dim=16),rule,workers=12,topology=topo,network=net,steps=400,pace="lognormal:cv=0.5",speeds="1x:50%,2x:50%",every=400)
                m=start.x.mean(0)
                tr=end.reading.traffic
                print(rn,topo,k,"err %.2g spread %.2g bias %.3g"%(abs(end.x-m).max(),abs(end.x-end.x.mean(0)).max(),np.sqrt(np.mean((end.x.mean(0)-m)**2))),"push",tr.pushes,"skip",tr.skipped,"ref",tr.refusals,"%.2f"%(time.time()-t),"w %.3g"%end.weights.min(),flush=True)
