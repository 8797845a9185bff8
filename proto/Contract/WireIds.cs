using KvCluster.Admin.V1;
using KvCluster.Internal.V1;
using KvCluster.V1;

namespace KvCluster;

/// <summary>The ids in messages and records, which hold them as bare numbers.</summary>
internal static class WireIds
{
    extension(Frame frame)
    {
        /// <summary>The shard that it is about.</summary>
        public ShardId ShardId
        {
            get => new(frame.Shard);
            set => frame.Shard = value.Value;
        }

        /// <summary>The replica that sends it.</summary>
        public ReplicaId SenderId
        {
            get => new(frame.Sender);
            set => frame.Sender = value.Value;
        }

        /// <summary>The replica that it is for.</summary>
        public ReplicaId ReceiverId
        {
            get => new(frame.Receiver);
            set => frame.Receiver = value.Value;
        }
    }

    extension(ShardRecord record)
    {
        /// <summary>Orders copies of the record: by the recovery of which it is, and then by its generation.</summary>
        public (ulong Recovery, ulong Generation) Rank => (record.Recovery, record.Generation);

        /// <summary>The shard.</summary>
        public ShardId ShardId
        {
            get => new(record.Shard);
            set => record.Shard = value.Value;
        }

        /// <summary>The replica that leads the record's epoch.</summary>
        public ReplicaId LeaderId
        {
            get => new(record.Leader);
            set => record.Leader = value.Value;
        }

        /// <summary>Whether the record lists the replica as removed.</summary>
        public bool HasRemoved(ReplicaId replica) => record.Removed.Contains(replica.Value);
    }

    extension(ReplicaRecord replica)
    {
        /// <summary>The replica's id.</summary>
        public ReplicaId ReplicaId
        {
            get => new(replica.Replica);
            set => replica.Replica = value.Value;
        }

        /// <summary>The node that holds the replica.</summary>
        public NodeId NodeId
        {
            get => new(replica.Node);
            set => replica.Node = value.Value;
        }
    }

    extension(ReplicaStatus status)
    {
        /// <summary>The replica that it describes.</summary>
        public ReplicaId ReplicaId
        {
            get => new(status.Replica);
            set => status.Replica = value.Value;
        }
    }

    extension(FollowerStatus status)
    {
        /// <summary>The follower.</summary>
        public ReplicaId ReplicaId
        {
            get => new(status.Replica);
            set => status.Replica = value.Value;
        }

        /// <summary>The follower's node.</summary>
        public NodeId NodeId
        {
            get => new(status.Node);
            set => status.Node = value.Value;
        }
    }

    extension(NodeRecord record)
    {
        /// <summary>The node.</summary>
        public NodeId NodeId
        {
            get => new(record.Node);
            set => record.Node = value.Value;
        }
    }

    extension(NodeAddress address)
    {
        /// <summary>The node.</summary>
        public NodeId NodeId
        {
            get => new(address.Node);
            set => address.Node = value.Value;
        }
    }

    extension(NodeStatus status)
    {
        /// <summary>The node that it describes.</summary>
        public NodeId NodeId
        {
            get => new(status.Node);
            set => status.Node = value.Value;
        }
    }

    extension(PeerHello hello)
    {
        /// <summary>The node that opens the stream.</summary>
        public NodeId NodeId
        {
            get => new(hello.Node);
            set => hello.Node = value.Value;
        }
    }

    extension(LeavingNode leaving)
    {
        /// <summary>The node.</summary>
        public NodeId NodeId
        {
            get => new(leaving.Node);
            set => leaving.Node = value.Value;
        }
    }

    extension(ReplicaCheckpoint checkpoint)
    {
        /// <summary>The replica's shard.</summary>
        public ShardId ShardId
        {
            get => new(checkpoint.Shard);
            set => checkpoint.Shard = value.Value;
        }

        /// <summary>The replica's node.</summary>
        public NodeId NodeId
        {
            get => new(checkpoint.Node);
            set => checkpoint.Node = value.Value;
        }
    }

    extension(NodeExamination examination)
    {
        /// <summary>The node that was examined.</summary>
        public NodeId NodeId
        {
            get => new(examination.Node);
            set => examination.Node = value.Value;
        }
    }

    extension(QuarantineRequest request)
    {
        /// <summary>The node of the replica.</summary>
        public NodeId NodeId
        {
            get => new(request.Node);
            set => request.Node = value.Value;
        }
    }

    extension(MayStopRequest request)
    {
        /// <summary>The shards whose voters want to stop.</summary>
        public IEnumerable<ShardId> ShardIds => request.Shards.Select(static shard => new ShardId(shard));

        /// <summary>The node whose voters want to stop.</summary>
        public NodeId NodeId
        {
            get => new(request.Node);
            set => request.Node = value.Value;
        }
    }

    extension(DrainRequest request)
    {
        /// <summary>The node that drains.</summary>
        public NodeId NodeId
        {
            get => new(request.Node);
            set => request.Node = value.Value;
        }
    }

    extension(TransferResponse response)
    {
        /// <summary>The node that leads now.</summary>
        public NodeId LeaderId
        {
            get => new(response.Leader);
            set => response.Leader = value.Value;
        }
    }

    extension(ShardRoute route)
    {
        /// <summary>The shard.</summary>
        public ShardId ShardId
        {
            get => new(route.Shard);
            set => route.Shard = value.Value;
        }

        /// <summary>The node that leads the shard, as far as is known.</summary>
        public NodeId LeaderId
        {
            get => new(route.Leader);
            set => route.Leader = value.Value;
        }
    }

    extension(ControllerRecord record)
    {
        /// <summary>The node that controls the placement of replicas.</summary>
        public NodeId NodeId
        {
            get => new(record.Node);
            set => record.Node = value.Value;
        }
    }

    extension(PlacementRecord record)
    {
        /// <summary>The nodes that should have no replica.</summary>
        public IEnumerable<NodeId> LeavingIds => record.Leaving.Select(static node => new NodeId(node));
    }

    extension(PlaceRequest request)
    {
        /// <summary>The nodes that are to leave.</summary>
        public IEnumerable<NodeId> LeaveIds => request.Leave.Select(static node => new NodeId(node));

        /// <summary>The nodes that may have replicas again.</summary>
        public IEnumerable<NodeId> StayIds => request.Stay.Select(static node => new NodeId(node));
    }

    extension(MayStopVerdict verdict)
    {
        /// <summary>The shard that it is about.</summary>
        public ShardId ShardId
        {
            get => new(verdict.Shard);
            set => verdict.Shard = value.Value;
        }
    }

    extension(KeptLeadership kept)
    {
        /// <summary>The shard still led.</summary>
        public ShardId ShardId
        {
            get => new(kept.Shard);
            set => kept.Shard = value.Value;
        }
    }

    extension(ShardDecision decision)
    {
        /// <summary>The shard that was decided about.</summary>
        public ShardId ShardId
        {
            get => new(decision.Shard);
            set => decision.Shard = value.Value;
        }
    }

    extension(Position position)
    {
        /// <summary>The shard of the etag.</summary>
        public ShardId ShardId
        {
            get => new(position.Shard);
            set => position.Shard = value.Value;
        }
    }

    extension(RequestId request)
    {
        /// <summary>The shard of the session.</summary>
        public ShardId ShardId
        {
            get => new(request.Shard);
            set => request.Shard = value.Value;
        }
    }

    extension(Call call)
    {
        /// <summary>The shard of the call.</summary>
        public ShardId ShardId
        {
            get => new(call.Shard);
            set => call.Shard = value.Value;
        }
    }
}
