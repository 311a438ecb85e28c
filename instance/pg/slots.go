package pg

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/acme/pg-operator/postgres"
)

// slotPrefix begins the names of the slots that are ours to drop.
const slotPrefix = "pg_operator_"

// slotForm finds them.
const slotForm = "^" + slotPrefix + "[0-9]+$"

// SlotName is the name of the replication slot of the instance with an ordinal.
func SlotName(ordinal int32) string { return fmt.Sprintf("%s%d", slotPrefix, ordinal) }

// provisionSlots makes the wanted slots and drops those of instances that are gone, and those that PostgreSQL gave up:
// their replica has to be cloned, and needs a new one for it. A slot holds no log before its replica first connects.
func provisionSlots(ctx context.Context, conn *pgx.Conn, wanted []string) error {
	_, err := conn.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
		WHERE slot_type = 'physical' AND NOT active AND slot_name ~ $1
		AND (wal_status = 'lost' OR NOT slot_name = ANY ($2))`, slotForm, wanted)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `SELECT pg_create_physical_replication_slot(wanted) FROM unnest($1::name[]) AS wanted
		WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = wanted)`, wanted)
	return err
}

// KeptBySlots is from where on each of a primary's slots keeps the log, by the slot's name; those that keep none are
// left out.
func KeptBySlots(ctx context.Context, conn *pgx.Conn) (map[string]postgres.LSN, error) {
	rows, err := conn.Query(ctx, `SELECT slot_name::text, restart_lsn::text FROM pg_replication_slots
		WHERE slot_type = 'physical' AND slot_name ~ $1 AND restart_lsn IS NOT NULL AND wal_status <> 'lost'`, slotForm)
	if err != nil {
		return nil, err
	}
	kept := map[string]postgres.LSN{}
	var name, at string
	_, err = pgx.ForEachRow(rows, []any{&name, &at}, func() error {
		position, bad := postgres.ParseLSN(at)
		kept[name] = position
		return bad
	})
	return kept, err
}

// ReplicaSlots makes the wanted slots on a replica, for the day on which it becomes the primary, and has each keep the
// log from where the primary keeps it: the others then go on at once, also one that was away. Those that keep none there
// must keep none here, because nobody would release it. kept is nil while the primary has not told: slots stay then.
func ReplicaSlots(ctx context.Context, conn *pgx.Conn, wanted []string, kept map[string]postgres.LSN) error {
	from := make([]*string, len(wanted))
	for i, slot := range wanted {
		if at, keeps := kept[slot]; keeps {
			text := at.String()
			from[i] = &text
		}
	}
	const wants = " unnest($1::name[], $2::text[]::pg_lsn[]) AS w(slot, kept) "
	// A slot goes forward only. One of an earlier role may be ahead, and remember queries of a replica.
	_, err := conn.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
		LEFT JOIN`+wants+`ON slot = slot_name CROSS JOIN pg_control_checkpoint() AS c
		WHERE slot_type = 'physical' AND NOT active AND slot_name ~ $3 AND (slot IS NULL OR $4 AND
			CASE WHEN kept IS NULL THEN restart_lsn IS NOT NULL
			ELSE restart_lsn IS NULL OR wal_status = 'lost' OR xmin IS NOT NULL OR restart_lsn > greatest(kept, redo_lsn) END)`,
		wanted, from, slotForm, kept != nil)
	if err != nil {
		return err
	}
	// One that keeps log begins with all that the replica is sure to have.
	_, err = conn.Exec(ctx, `SELECT pg_create_physical_replication_slot(slot, kept IS NOT NULL) FROM`+wants+`
		WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = slot)`, wanted, from)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `SELECT pg_replication_slot_advance(slot, least(kept, pg_last_wal_replay_lsn()))
		FROM pg_replication_slots JOIN`+wants+`ON slot = slot_name
		WHERE NOT active AND wal_status <> 'lost' AND restart_lsn < least(kept, pg_last_wal_replay_lsn())`, wanted, from)
	return err
}

// SlotsDue tells whether the slots are not as provisionSlots would leave them.
func SlotsDue(ctx context.Context, conn *pgx.Conn, wanted []string) (bool, error) {
	var due bool
	err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_type = 'physical' AND NOT active
			AND slot_name ~ $1 AND (wal_status = 'lost' OR NOT slot_name = ANY ($2)))
		OR EXISTS (SELECT FROM unnest($2::name[]) AS wanted
			WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = wanted))`,
		slotForm, wanted).Scan(&due)
	return due, err
}
